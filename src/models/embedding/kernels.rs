//! The kernels: matrix products and activation functions, written over `pulp`, which selects the widest SIMD instructions at
//! run time, without `unsafe` here. Weights are stored in the order of the innermost loop: in panels of sixteen columns.

#![expect(clippy::inline_always, reason = "only what is inlined into the dispatched function gets its instructions")]

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

/// The columns of a panel: one register of AVX-512, two of AVX2, four of NEON. Every width below is a multiple of it.
pub(super) const PANEL: usize = 16;

/// Rows of numbers, `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) numbers: &'a [f32],
    pub(super) stride: usize,
    pub(super) count: usize,
    pub(super) width: usize,
}

impl<'a> Rows<'a> {
    fn from(self, first: usize) -> impl Iterator<Item = &'a [f32]> {
        (first..self.count).map(move |row| &self.numbers[row * self.stride..][..self.width])
    }

    /// The transposed matrix as the right side of a `Product`, in panels.
    pub(super) fn transposed_panels(self, out: &mut Vec<f32>) {
        for first in (0..self.count).step_by(PANEL) {
            let start = out.len();
            out.resize(start + self.width * PANEL, 0.0);
            for (at, row) in self.from(first).take(PANEL).enumerate() {
                out[start + at..].iter_mut().step_by(PANEL).zip(row).for_each(|(out, x)| *out = *x);
            }
        }
    }
}

/// The left side of a `Product`, whose rows are these or, in `Columns`, the columns of these.
#[derive(Clone, Copy)]
pub(super) enum Left<'a> {
    Rows(Rows<'a>),
    Columns(Rows<'a>),
}

impl Left<'_> {
    fn count(self) -> usize {
        match self {
            Self::Rows(rows) => rows.count,
            Self::Columns(columns) => columns.width,
        }
    }

    fn width(self) -> usize {
        match self {
            Self::Rows(rows) => rows.width,
            Self::Columns(columns) => columns.count,
        }
    }

    /// Stores the numbers tile by tile, and in each tile column by column.
    #[inline(always)]
    fn tiles(self, most: usize, out: &mut Vec<f32>) {
        let width = self.width();
        out.resize(out.len().max(self.count() * width), 0.0);
        for range in heights(self.count(), most) {
            let height = range.len();
            let tile = &mut out[range.start * width..range.end * width];
            match self {
                Self::Rows(rows) => {
                    for (at, row) in rows.from(range.start).take(height).enumerate() {
                        tile[at..].iter_mut().step_by(height).zip(row).for_each(|(out, x)| *out = *x);
                    }
                }
                Self::Columns(columns) => {
                    for (out, column) in tile.chunks_exact_mut(height).zip(columns.from(0)) {
                        out.copy_from_slice(&column[range.clone()]);
                    }
                }
            }
        }
    }
}

/// The rows of each tile: as few tiles as possible, and about equally high.
fn heights(count: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = count.div_ceil(most);
    let (height, higher) = (count / tiles.max(1), count % tiles.max(1));
    (0..tiles).map(move |tile| {
        let first = tile * height + tile.min(higher);
        first..first + height + usize::from(tile < higher)
    })
}

/// `out = left × right + bias`, with `right` in panels.
pub(super) struct Product<'a> {
    pub(super) left: Left<'a>,
    pub(super) right: &'a [f32],
    /// `None` for zeros.
    pub(super) bias: Option<&'a [f32]>,
    pub(super) out: Out<'a>,
}

/// Where a result goes: row by row if panels are `PANEL` apart.
pub(super) struct Out<'a> {
    pub(super) numbers: &'a mut [f32],
    /// The distance between the rows of a panel.
    pub(super) stride: usize,
    /// The distance between panels.
    pub(super) step: usize,
}

impl Product<'_> {
    /// `tiles` is a buffer, reused between products.
    pub(super) fn compute(self, arch: Arch, tiles: &mut Vec<f32>) {
        arch.dispatch(Tiled { tiles, product: self });
    }
}

/// A product, and the buffer for the tiles of its left side.
struct Tiled<'a> {
    tiles: &'a mut Vec<f32>,
    product: Product<'a>,
}

impl WithSimd for Tiled<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            16 => self.multiply::<S, 1>(simd, 12),
            8 => self.multiply::<S, 2>(simd, 6),
            4 => self.multiply::<S, 4>(simd, 6),
            _ => self.multiply::<S, PANEL>(simd, 6),
        }
    }
}

impl Tiled<'_> {
    #[inline(always)]
    fn multiply<S: Simd, const VECTORS: usize>(self, simd: S, most: usize) {
        let Self { tiles, product: Product { left, right, bias, out } } = self;
        let (count, width) = (left.count(), left.width());
        left.tiles(most, tiles);
        let mut panels = right.chunks_exact(width * PANEL).map(vectors::<S, VECTORS>).enumerate();
        while let Some((number, panel)) = panels.next() {
            let bias = bias.map(|bias| &bias[number * PANEL..]);
            let out = Out { numbers: &mut out.numbers[number * out.step..], ..out };
            let mut column = Column { tiles, count, width, most, bias, out };
            // A panel of one register is multiplied together with the next, so that a load of the left side serves two sums.
            if VECTORS == 1
                && let Some((_, second)) = panels.next()
            {
                column.multiply::<S, 2, _>(simd, || panel.iter().zip(second).map(|(a, b)| [a[0], b[0]]));
            } else {
                column.multiply::<S, VECTORS, _>(simd, || panel.iter().copied());
            }
        }
    }
}

/// All tiles by the same one or two panels.
struct Column<'a> {
    tiles: &'a [f32],
    count: usize,
    width: usize,
    most: usize,
    bias: Option<&'a [f32]>,
    out: Out<'a>,
}

impl Column<'_> {
    #[inline(always)]
    fn multiply<S: Simd, const VECTORS: usize, R: Iterator<Item = [S::f32s; VECTORS]>>(&mut self, simd: S, right: impl Fn() -> R) {
        for range in heights(self.count, self.most) {
            let tile = &self.tiles[range.start * self.width..range.end * self.width];
            match range.len().min(self.most) {
                1 => self.rows::<S, 1, VECTORS>(simd, tile, right(), range.start),
                2 => self.rows::<S, 2, VECTORS>(simd, tile, right(), range.start),
                3 => self.rows::<S, 3, VECTORS>(simd, tile, right(), range.start),
                4 => self.rows::<S, 4, VECTORS>(simd, tile, right(), range.start),
                5 => self.rows::<S, 5, VECTORS>(simd, tile, right(), range.start),
                6 => self.rows::<S, 6, VECTORS>(simd, tile, right(), range.start),
                7 => self.rows::<S, 7, VECTORS>(simd, tile, right(), range.start),
                8 => self.rows::<S, 8, VECTORS>(simd, tile, right(), range.start),
                9 => self.rows::<S, 9, VECTORS>(simd, tile, right(), range.start),
                10 => self.rows::<S, 10, VECTORS>(simd, tile, right(), range.start),
                11 => self.rows::<S, 11, VECTORS>(simd, tile, right(), range.start),
                _ => self.rows::<S, 12, VECTORS>(simd, tile, right(), range.start),
            }
        }
    }

    /// One tile. The sums stay in registers.
    #[inline(always)]
    fn rows<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        simd: S,
        tile: &[f32],
        right: impl Iterator<Item = [S::f32s; VECTORS]>,
        first: usize,
    ) {
        let Out { stride, step, .. } = self.out;
        let out = &mut self.out.numbers[first * stride..];
        let start = self.bias.map_or([simd.splat_f32s(0.0); VECTORS], |bias| vectors::<S, VECTORS>(bias)[0]);
        let mut sums = [start; ROWS];
        for (left, right) in tile.as_chunks::<ROWS>().0.iter().zip(right) {
            for row in 0..ROWS {
                let left = simd.splat_f32s(left[row]);
                for vector in 0..VECTORS {
                    sums[row][vector] = simd.mul_add_e_f32s(left, right[vector], sums[row][vector]);
                }
            }
        }
        let each = PANEL / S::F32_LANES;
        for (row, sums) in sums.into_iter().enumerate() {
            for (vector, sum) in sums.into_iter().enumerate() {
                let at = row * stride + vector / each * step + vector % each * S::F32_LANES;
                S::as_mut_simd_f32s(&mut out[at..][..S::F32_LANES]).0[0] = sum;
            }
        }
    }
}

#[inline(always)]
fn vectors<S: Simd, const VECTORS: usize>(numbers: &[f32]) -> &[[S::f32s; VECTORS]] {
    S::as_simd_f32s(numbers).0.as_chunks::<VECTORS>().0
}

/// `x ↦ x · Φ(x)`, in place. The numbers fill whole panels.
pub(super) struct Gelu<'a>(pub(super) &'a mut [f32]);

impl WithSimd for Gelu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for x in S::as_mut_simd_f32s(self.0).0 {
            let half = simd.mul_f32s(simd.splat_f32s(0.5), *x);
            let part = error_function(simd, simd.mul_f32s(*x, simd.splat_f32s(std::f32::consts::FRAC_1_SQRT_2)));
            *x = simd.mul_add_e_f32s(half, part, half);
        }
    }
}

/// Scales the columns of panels and replaces them by their softmax.
pub(super) struct Softmax<'a> {
    pub(super) panels: &'a mut [f32],
    /// The rows of a panel.
    pub(super) count: usize,
    pub(super) scale: f32,
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let each = PANEL / S::F32_LANES;
        let scale = simd.splat_f32s(self.scale);
        for panel in self.panels.chunks_exact_mut(self.count * PANEL) {
            let panel = S::as_mut_simd_f32s(panel).0;
            for first in 0..each {
                let column = &mut panel[first..];
                let most = column.iter().step_by(each).fold(column[0], |most, x| simd.max_f32s(most, *x));
                let mut sum = simd.splat_f32s(0.0);
                for x in column.iter_mut().step_by(each) {
                    *x = exponential(simd, simd.mul_f32s(simd.sub_f32s(*x, most), scale));
                    sum = simd.add_f32s(sum, *x);
                }
                let share = simd.div_f32s(simd.splat_f32s(1.0), sum);
                for x in column.iter_mut().step_by(each) {
                    *x = simd.mul_f32s(*x, share);
                }
            }
        }
    }
}

/// `x = normalised(x + added) · weight + bias`, for each row of `weight.len()` numbers.
pub(super) struct Norm<'a> {
    pub(super) rows: &'a mut [f32],
    pub(super) added: &'a [f32],
    pub(super) weight: &'a [f32],
    pub(super) bias: &'a [f32],
    pub(super) epsilon: f32,
}

impl WithSimd for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let width = self.weight.len();
        #[expect(clippy::cast_precision_loss, reason = "rows are a few hundred numbers wide")]
        let share = 1.0 / width as f32;
        for (row, added) in self.rows.chunks_exact_mut(width).zip(self.added.chunks_exact(width)) {
            for (x, added) in row.iter_mut().zip(added) {
                *x += added;
            }
            let mean = folded(row, 0.0, |a, b| a + b) * share;
            for x in row.iter_mut() {
                *x -= mean;
            }
            let mut squares = [0.0; PANEL];
            for part in row.as_chunks::<PANEL>().0 {
                for (sum, x) in squares.iter_mut().zip(part) {
                    *sum += x * x;
                }
            }
            let scale = 1.0 / (squares.iter().sum::<f32>() * share + self.epsilon).sqrt();
            for ((x, weight), bias) in row.iter_mut().zip(self.weight).zip(self.bias) {
                *x = *x * scale * weight + bias;
            }
        }
    }
}

/// Folds in sixteen lanes, and then across the lanes.
#[inline(always)]
fn folded(numbers: &[f32], start: f32, fold: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; PANEL];
    for part in numbers.as_chunks::<PANEL>().0 {
        for (lane, &x) in lanes.iter_mut().zip(part) {
            *lane = fold(*lane, x);
        }
    }
    lanes.into_iter().fold(start, fold)
}

/// `factors[0] + x · (factors[1] + x · …)`.
#[inline(always)]
fn series<S: Simd>(simd: S, x: S::f32s, factors: &[f32]) -> S::f32s {
    factors.iter().rev().fold(simd.splat_f32s(0.0), |sum, factor| simd.mul_add_e_f32s(sum, x, simd.splat_f32s(*factor)))
}

/// e to the power of x, with a relative error of about 2e-7. x = n·ln 2 + r with |r| ≤ ½ ln 2: e^r by Taylor's series, and n
/// added to the exponent. Zero below -87.
#[inline(always)]
fn exponential<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // Adding this moves the integer part of a small number into the lowest bits.
    const WHOLE: f32 = 12_582_912.0;
    // ln 2 in two parts: the product of the first with n is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let number = |x| simd.splat_f32s(x);
    let x = simd.min_f32s(simd.max_f32s(x, number(-87.0)), number(88.0));
    let shifted = simd.mul_add_e_f32s(x, number(std::f32::consts::LOG2_E), number(WHOLE));
    let n = simd.sub_f32s(shifted, number(WHOLE));
    let r = simd.mul_add_e_f32s(n, number(-LN_2_HIGH), x);
    let r = simd.mul_add_e_f32s(n, number(-LN_2_LOW), r);
    let power = series(simd, r, &[1.0, 1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0]);
    let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    let one = simd.splat_u32s(1.0_f32.to_bits());
    simd.mul_f32s(power, simd.transmute_f32s_u32s(simd.add_u32s(exponent, one)))
}

/// Formula 7.1.26 of Abramowitz and Stegun, with an error below 1.5e-7.
#[inline(always)]
fn error_function<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let number = |x| simd.splat_f32s(x);
    let sign = simd.and_f32s(x, number(-0.0));
    let size = simd.abs_f32s(x);
    let t = simd.div_f32s(number(1.0), simd.mul_add_e_f32s(size, number(0.327_591_1), number(1.0)));
    let rest = series(simd, t, &[0.0, 0.254_829_6, -0.284_496_74, 1.421_413_7, -1.453_152, 1.061_405_4]);
    let rest = simd.mul_f32s(rest, exponential(simd, simd.neg_f32s(simd.mul_f32s(x, x))));
    simd.or_f32s(simd.sub_f32s(number(1.0), rest), sign)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use pulp::Scalar;

    use super::*;

    /// Numbers that look random and are the same each time.
    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7919 + 13) % 1000) as f32 / 500.0 - 1.0).collect()
    }

    /// The instructions of this processor, and those of lesser ones.
    fn archs() -> Vec<Arch> {
        let mut archs = vec![Arch::new(), Arch::Scalar];
        #[cfg(target_arch = "x86_64")]
        archs.extend(pulp::x86::V3::try_new().map(Arch::V3));
        archs
    }

    fn turned(numbers: &[f32], stride: usize, count: usize, width: usize) -> Vec<f32> {
        (0..width * count).map(|at| numbers[at % count * stride + at / count]).collect()
    }

    #[test]
    fn a_product_is_what_the_schoolbook_says() {
        for (count, width, columns) in [(1, 16, 16), (2, 5, 32), (6, 16, 16), (13, 48, 40), (17, 3, 7), (31, 400, 48)] {
            let (left, right, bias) = (numbers(count * (width + 3)), numbers(width * columns), numbers(columns.next_multiple_of(PANEL)));
            let mut laid = Vec::new();
            Rows { numbers: &turned(&right, columns, width, columns), stride: width, count: columns, width }.transposed_panels(&mut laid);
            let rows = Rows { numbers: &left, stride: width + 3, count, width };
            let turned = turned(&left, rows.stride, count, width);
            let columns_of_turned = Left::Columns(Rows { numbers: &turned, stride: count, count: width, width: count });
            let whole = columns.next_multiple_of(PANEL);
            for ((arch, left), (stride, step)) in archs()
                .into_iter()
                .flat_map(|arch| [(arch, Left::Rows(rows)), (arch, columns_of_turned)])
                .flat_map(|case| [(case, (whole + 4, PANEL)), (case, (PANEL, count * PANEL))])
            {
                let mut out = vec![f32::NAN; count * (whole + 4)];
                let place = Out { numbers: &mut out, stride, step };
                Product { left, right: &laid, bias: Some(&bias), out: place }.compute(arch, &mut Vec::new());
                for (row, column) in (0..count).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let exact: f64 = (0..width)
                        .map(|at| f64::from(rows.numbers[row * rows.stride + at]) * f64::from(right[at * columns + column]))
                        .sum();
                    let exact = exact + f64::from(bias[column]);
                    let found = f64::from(out[row * stride + column / PANEL * step + column % PANEL]);
                    assert!((found - exact).abs() < 5e-5, "{count}×{width}×{columns} at {row},{column}: {found}, not {exact}");
                }
            }
        }
    }

    #[test]
    fn the_exponential_is_true_wherever_softmax_uses_it() {
        for step in -8700..=8800_i32 {
            let x = step as f32 / 100.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exponential(Scalar, x)) / exact - 1.0).abs() < 5e-7, "{x}: {} is not {exact}", exponential(Scalar, x));
        }
        assert!(exponential(Scalar, f32::NEG_INFINITY) < 1e-37);
        assert!(exponential(Scalar, 1000.0).is_finite());
    }

    #[test]
    fn the_error_function_agrees_with_known_values() {
        // From the tables of the same handbook.
        let known = [(0.0, 0.0), (0.1, 0.112_462_92), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (2.0, 0.995_322_3), (4.0, 1.0)];
        for (x, exact) in known {
            for (x, exact) in [(x, exact), (-x, -exact)] {
                assert!((error_function(Scalar, x) - exact).abs() < 4e-7, "{x}: {} is not {exact}", error_function(Scalar, x));
            }
        }
    }

    #[test]
    fn a_softmax_is_of_each_column_of_a_panel() {
        let scores = [1.0_f32, 2.0, 3.0].map(|score| std::array::from_fn::<_, PANEL, _>(|lane| if lane == 5 { 50.0 } else { score }));
        let whole: f32 = [2.0_f32, 4.0, 6.0].iter().map(|x| x.exp()).sum();
        for arch in archs() {
            let mut panels = scores.as_flattened().repeat(2);
            arch.dispatch(Softmax { panels: &mut panels, count: 3, scale: 2.0 });
            for (at, share) in panels.iter().enumerate() {
                let exact = if at % PANEL == 5 { 1.0 / 3.0 } else { [2.0_f32, 4.0, 6.0][at / PANEL % 3].exp() / whole };
                assert!((share - exact).abs() < 1e-6, "{share} is not {exact} at {at}");
            }
        }
    }

    #[test]
    fn gelu_is_the_same_in_all_lanes() {
        for arch in archs() {
            let mut found: Vec<f32> = (0..4 * PANEL).map(|at| at as f32 / 8.0 - 4.0).collect();
            let before = found.clone();
            arch.dispatch(Gelu(&mut found));
            for (x, found) in before.into_iter().zip(found) {
                let exact = 0.5 * x * (1.0 + error_function(Scalar, x * std::f32::consts::FRAC_1_SQRT_2));
                assert!((found - exact).abs() < 5e-7, "{x}: {found} is not {exact}");
            }
        }
    }

    #[test]
    fn a_norm_has_mean_zero_and_variance_one() {
        let (mut rows, added, weight, bias) = (numbers(64), numbers(64), vec![1.0; 32], vec![0.0; 32]);
        Arch::new().dispatch(Norm { rows: &mut rows, added: &added, weight: &weight, bias: &bias, epsilon: 1e-12 });
        for row in rows.chunks(32) {
            let mean: f32 = row.iter().sum::<f32>() / 32.0;
            let variance: f32 = row.iter().map(|x| x * x).sum::<f32>() / 32.0;
            assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-5, "{mean} {variance}");
        }
    }
}
