//! The colours of figures in an SVG and in a terminal, in the order of the legend. The colours of a run's page are in
//! `view/page.css`.

/// A colour as 0xRRGGBB.
pub(super) type Ink = u32;

/// The colour palette of Okabe and Ito, without yellow, which is invisible on white.
pub(super) const INKS: [Ink; 7] = [
    0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x000000,
];

/// The grey of axes and of reference lines.
pub(super) const GREY: Ink = 0x666666;

/// The colours at the ends of a heat map's scale: for the lowest values below 0, and for the highest values above 0.
pub(super) const COLD: [f64; 3] = [5.0, 90.0, 150.0];
pub(super) const WARM: [f64; 3] = [190.0, 70.0, 0.0];

/// The colours of a terminal, as the numbers in the terminal's colour codes.
pub(super) const OF_TERMINAL: [&str; 6] = ["34", "33", "32", "35", "36", "31"];
