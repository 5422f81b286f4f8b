//! Draws a maze with the path that a response takes through it.

use super::{Board, GOAL, START, STOP, WALL};

/// The signs of the tokens 0 to 4.
const ARROWS: [char; 5] = ['↑', '↓', '←', '→', '■'];

/// The path's piece in a cell, by the sides that it leaves through: up 1, down 2, left 4, right 8.
const PIECES: [char; 16] = [
    '·', '╵', '╷', '│', '╴', '╯', '╮', '┤', '╶', '╰', '╭', '├', '─', '┴', '┬', '┼',
];

/// The sides of both cells that a move goes through, in the order of the moves.
const SIDES: [(u8, u8); 4] = [(1, 2), (2, 1), (4, 8), (8, 4)];
const RIGHT: u8 = 8;

pub(super) fn draw(board: &Board<'_>, response: &[u32], correct: bool) -> String {
    let (path, stopped) = board.walk(response);
    let mut sides = vec![0; board.cells.len()];
    for (step, &token) in path.windows(2).zip(response) {
        // A move that a wall or the edge stopped leaves no trace.
        if step[0] != step[1] {
            let (leave, enter) = SIDES[token as usize];
            sides[step[0]] |= leave;
            sides[step[1]] |= enter;
        }
    }
    let end = *path.last().unwrap_or(&board.start);

    let edge = "─".repeat(2 * board.size + 1);
    let mut lines = vec![format!("╭{edge}╮")];
    for row in 0..board.size {
        let mut line = String::from("│ ");
        for column in 0..board.size {
            let cell = row * board.size + column;
            line.push(match board.cells[cell] {
                WALL => '█',
                START => 'S',
                GOAL => 'G',
                _ if cell == end => '×',
                _ => PIECES[usize::from(sides[cell])],
            });
            let walls = board.cells[cell] == WALL
                && column + 1 < board.size
                && board.cells[cell + 1] == WALL;
            line.push(if sides[cell] & RIGHT != 0 {
                '─'
            } else if walls {
                '█'
            } else {
                ' '
            });
        }
        lines.push(line + "│");
    }
    lines.push(format!("╰{edge}╯"));
    lines.push(verdict(response, stopped, correct));
    lines.join("\n")
}

/// The moves up to the stop, and what came of them.
fn verdict(response: &[u32], stopped: bool, correct: bool) -> String {
    let shown = response
        .iter()
        .position(|&token| token == STOP)
        .map_or(response, |stop| &response[..=stop]);
    let arrows: String = shown
        .iter()
        .map(|&token| ARROWS.get(token as usize).unwrap_or(&'?'))
        .collect();
    if correct {
        format!("{arrows} ✓")
    } else if stopped {
        format!("{arrows} ✗ stopped off the goal or too late")
    } else {
        format!("{arrows} ✗ never stopped")
    }
}

#[cfg(test)]
mod tests {
    use crate::train::task::maze::tests::prompt;
    use crate::train::task::{Maze, Task};

    #[test]
    fn a_right_path_is_drawn_from_start_to_goal() {
        let maze = Maze::new(4).unwrap();
        let prompt = prompt(&["S.##", "#...", "..#.", "..#G"]);
        let shown = maze.show(&prompt, &[3, 0, 1, 3, 3, 1, 1, 4, 0]);
        let expected = "\
╭─────────╮
│ S─╮ ███ │
│ █ ╰───╮ │
│ · · █ │ │
│ · · █ G │
╰─────────╯
→↑↓→→↓↓■ ✓";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_wrong_path_is_marked_where_it_ends() {
        let maze = Maze::new(4).unwrap();
        let prompt = prompt(&["S.##", "#...", "..#.", "..#G"]);
        let expected = "\
╭─────────╮
│ S─╮ ███ │
│ █ ├─╴ · │
│ · × █ · │
│ · · █ G │
╰─────────╯
→↓→←↓■ ✗ stopped off the goal or too late";
        assert_eq!(maze.show(&prompt, &[3, 1, 3, 2, 1, 4]), expected);
        let endless = maze.show(&prompt, &[3, 1, 7, 1]);
        assert!(endless.ends_with("→↓?↓ ✗ never stopped"), "{endless}");
    }
}
