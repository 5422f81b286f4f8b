//! Draws a maze with the moves that a response makes in it.

use super::{Board, GOAL, START, STOP, WALL};

/// The signs of the tokens 0 to 4.
const ARROWS: [char; 5] = ['↑', '↓', '←', '→', '■'];

fn arrow(token: u32) -> char {
    *ARROWS.get(token as usize).unwrap_or(&'?')
}

/// The maze, with the last move from each cell that the walk leaves, and the moves up to the stop with what came of
/// them.
pub(super) fn draw(board: &Board<'_>, response: &[u32], correct: bool) -> String {
    let (path, stopped) = board.walk(response);
    let mut signs = vec!['·'; board.cells.len()];
    for (&cell, &token) in path.iter().zip(response) {
        signs[cell] = arrow(token);
    }
    if let Some(&end) = path.last() {
        signs[end] = '×';
    }
    for (sign, &cell) in signs.iter_mut().zip(board.cells) {
        match cell {
            WALL => *sign = '█',
            START => *sign = 'S',
            GOAL => *sign = 'G',
            _ => {}
        }
    }
    let edge = "─".repeat(2 * board.size + 1);
    let mut lines = vec![format!("╭{edge}╮")];
    for row in signs.chunks(board.size) {
        let row: Vec<String> = row.iter().map(char::to_string).collect();
        lines.push(format!("│ {} │", row.join(" ")));
    }
    lines.push(format!("╰{edge}╯"));
    let mut moves = response.split_inclusive(|&token| token == STOP);
    let moves: String = moves
        .next()
        .unwrap_or_default()
        .iter()
        .copied()
        .map(arrow)
        .collect();
    let verdict = match (correct, stopped) {
        (true, _) => "✓",
        (false, true) => "✗ stopped off the goal or too late",
        (false, false) => "✗ never stopped",
    };
    lines.push(format!("{moves} {verdict}"));
    lines.join("\n")
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
│ S ↓ █ █ │
│ █ → → ↓ │
│ · · █ ↓ │
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
│ S ↓ █ █ │
│ █ ↓ ← · │
│ · × █ · │
│ · · █ G │
╰─────────╯
→↓→←↓■ ✗ stopped off the goal or too late";
        assert_eq!(maze.show(&prompt, &[3, 1, 3, 2, 1, 4]), expected);
        let endless = maze.show(&prompt, &[3, 1, 7, 1]);
        assert!(endless.ends_with("→↓?↓ ✗ never stopped"), "{endless}");
    }
}
