//! A canvas of Braille dots: two across and four down in a letter.

/// Dots, each of the series that drew it last.
pub(super) struct Canvas {
    across: usize,
    down: usize,
    letters: Vec<u8>,
    ink: Vec<usize>,
}

/// The bit of each dot in a Braille letter, by row and column.
const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

impl Canvas {
    /// An empty canvas of so many letters.
    pub(super) fn new(across: usize, down: usize) -> Canvas {
        Canvas {
            across,
            down,
            letters: vec![0; across * down],
            ink: vec![0; across * down],
        }
    }

    /// Dots across and down.
    pub(super) fn size(&self) -> (usize, usize) {
        (2 * self.across, 4 * self.down)
    }

    /// Sets a dot, (0, 0) at the top left.
    pub(super) fn dot(&mut self, x: usize, y: usize, series: usize) {
        let (width, height) = self.size();
        if x < width && y < height {
            let letter = y / 4 * self.across + x / 2;
            self.letters[letter] |= BITS[y % 4][x % 2];
            self.ink[letter] = series;
        }
    }

    /// Sets the dots from one to another.
    pub(super) fn line(&mut self, from: (usize, usize), to: (usize, usize), series: usize) {
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        let between = |a: usize, b: usize, step: usize| {
            let share = step as f64 / steps as f64;
            (a as f64 + share * (b as f64 - a as f64)).round() as usize
        };
        for step in 0..=steps {
            let (x, y) = (between(from.0, to.0, step), between(from.1, to.1, step));
            self.dot(x, y, series);
        }
    }

    /// The lines of letters, each letter with the series that drew it last; empty letters have none.
    pub(super) fn rows(&self) -> Vec<Vec<(char, Option<usize>)>> {
        let letter = |place: usize| match self.letters[place] {
            0 => (' ', None),
            bits => (
                char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' '),
                Some(self.ink[place]),
            ),
        };
        (0..self.down)
            .map(|row| {
                (0..self.across)
                    .map(|x| letter(row * self.across + x))
                    .collect()
            })
            .collect()
    }
}
