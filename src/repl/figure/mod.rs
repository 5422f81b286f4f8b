//! Figures: lines, points and bars in panels, for a terminal or as SVG.

mod svg;
mod text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Line,
    Points,
    /// Bars that stand on 0, one a point; as wide as the points are apart.
    Bars,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Its name in the legend; empty where there is only one.
    pub(super) name: &'static str,
    pub(super) mark: Mark,
    pub(super) points: Vec<(f64, f64)>,
}

/// Axes with series.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) x: String,
    pub(super) y: String,
    pub(super) series: Vec<Series>,
}

#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
}

/// The smallest and largest x and y of a panel's points.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    x: (f64, f64),
    y: (f64, f64),
}

impl Series {
    /// The points that can be drawn.
    fn finite(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let points = self.points.iter().copied();
        points.filter(|(x, y)| x.is_finite() && y.is_finite())
    }
}

impl Panel {
    /// `None` where there is no finite point.
    fn range(&self) -> Option<Range> {
        let points = self.series.iter().flat_map(Series::finite);
        let spans = points.map(|(x, y)| [(x, x), (y, y)]);
        let hull = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.max(b.1));
        let [mut x, mut y] = spans.reduce(|a, b| [hull(a[0], b[0]), hull(a[1], b[1])])?;
        let bars = self.series.iter().find(|series| series.mark == Mark::Bars);
        if let Some(bars) = bars {
            y = (y.0.min(0.0), y.1.max(0.0));
            // Points are the middles of bars.
            let half = (x.1 - x.0) / (2 * bars.points.len().saturating_sub(1).max(1)) as f64;
            x = (x.0 - half, x.1 + half);
        }
        for axis in [&mut x, &mut y] {
            if axis.0 == axis.1 {
                *axis = (axis.0 - 1.0, axis.1 + 1.0);
            }
        }
        Some(Range { x, y })
    }
}

impl Range {
    /// The numbers at the y axis: the least, the most, and 0 where it is between them.
    fn labels(self) -> impl Iterator<Item = f64> {
        let (least, most) = self.y;
        let zero = (least < 0.0 && most > 0.0).then_some(0.0);
        [least, most].into_iter().chain(zero)
    }
}
