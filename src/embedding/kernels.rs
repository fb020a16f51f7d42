//! The kernels: matrix products and activation functions, written over `pulp`, which selects the widest SIMD instructions at
//! run time, without `unsafe` here. Weights are stored in the order of the innermost loop: in panels of sixteen columns.

#![expect(clippy::inline_always, reason = "only what is inlined into the dispatched function gets its instructions")]

use pulp::{Arch, Simd, WithSimd};

/// The columns of a panel: one register of AVX-512, two of AVX2, four of NEON. Every width below is a multiple of it.
pub(super) const PANEL: usize = 16;

/// The rows of a tile. Six rows of two registers leave enough of sixteen registers for the panel.
const TILE: usize = 6;

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

    /// As the right side of a `Product`, in panels.
    pub(super) fn panels(self, out: &mut Vec<f32>) {
        for column in (0..self.width).step_by(PANEL) {
            for row in self.from(0) {
                let part = &row[column..self.width.min(column + PANEL)];
                out.extend_from_slice(part);
                out.resize(out.len() + PANEL - part.len(), 0.0);
            }
        }
    }

    /// The same of the transposed matrix.
    pub(super) fn transposed_panels(self, out: &mut Vec<f32>) {
        for first in (0..self.count).step_by(PANEL) {
            let start = out.len();
            out.resize(start + self.width * PANEL, 0.0);
            for (at, row) in self.from(first).take(PANEL).enumerate() {
                out[start + at..].iter_mut().step_by(PANEL).zip(row).for_each(|(out, x)| *out = *x);
            }
        }
    }

    /// As the left side of a `Product`: tile by tile, and in each tile column by column.
    fn tiles(self, out: &mut Vec<f32>) {
        out.clear();
        out.resize(self.count * self.width, 0.0);
        for (number, tile) in out.chunks_mut(TILE * self.width).enumerate() {
            let rows = tile.len() / self.width;
            for (at, row) in self.from(number * TILE).take(rows).enumerate() {
                tile[at..].iter_mut().step_by(rows).zip(row).for_each(|(out, x)| *out = *x);
            }
        }
    }
}

/// `out = left × right + bias`, with `right` in panels.
pub(super) struct Product<'a> {
    pub(super) left: Rows<'a>,
    pub(super) right: &'a [f32],
    /// `None` for zeros.
    pub(super) bias: Option<&'a [f32]>,
    pub(super) out: &'a mut [f32],
    /// The distance between rows of `out`.
    pub(super) stride: usize,
}

impl Product<'_> {
    /// `tiles` is a buffer, reused between products.
    pub(super) fn compute(self, arch: Arch, tiles: &mut Vec<f32>) {
        self.left.tiles(tiles);
        arch.dispatch(Tiled { tiles, product: self });
    }
}

/// A product whose left side is stored in tiles, column by column.
struct Tiled<'a> {
    tiles: &'a [f32],
    product: Product<'a>,
}

impl WithSimd for Tiled<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            16 => self.multiply::<S, 1>(simd),
            8 => self.multiply::<S, 2>(simd),
            4 => self.multiply::<S, 4>(simd),
            _ => self.multiply::<S, PANEL>(simd),
        }
    }
}

impl Tiled<'_> {
    #[inline(always)]
    fn multiply<S: Simd, const VECTORS: usize>(self, simd: S) {
        let Product { left, right, bias, out, stride } = self.product;
        for (panel, right) in right.chunks_exact(left.width * PANEL).enumerate() {
            let column = panel * PANEL;
            let start = bias.map_or([0.0; PANEL], |bias| std::array::from_fn(|at| bias[column + at]));
            let start = vectors::<S, VECTORS>(&start)[0];
            let right = vectors::<S, VECTORS>(right);
            for (number, tile) in self.tiles.chunks(left.width * TILE).enumerate() {
                let out = &mut out[number * TILE * stride + column..];
                match tile.len() / left.width {
                    1 => rows::<S, 1, VECTORS>(simd, tile, right, start, out, stride),
                    2 => rows::<S, 2, VECTORS>(simd, tile, right, start, out, stride),
                    3 => rows::<S, 3, VECTORS>(simd, tile, right, start, out, stride),
                    4 => rows::<S, 4, VECTORS>(simd, tile, right, start, out, stride),
                    5 => rows::<S, 5, VECTORS>(simd, tile, right, start, out, stride),
                    _ => rows::<S, TILE, VECTORS>(simd, tile, right, start, out, stride),
                }
            }
        }
    }
}

#[inline(always)]
fn vectors<S: Simd, const VECTORS: usize>(numbers: &[f32]) -> &[[S::f32s; VECTORS]] {
    S::as_simd_f32s(numbers).0.as_chunks::<VECTORS>().0
}

/// One tile by one panel. The sums stay in registers.
#[inline(always)]
fn rows<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    tile: &[f32],
    right: &[[S::f32s; VECTORS]],
    start: [S::f32s; VECTORS],
    out: &mut [f32],
    stride: usize,
) {
    let mut sums = [start; ROWS];
    for (left, right) in tile.as_chunks::<ROWS>().0.iter().zip(right) {
        for row in 0..ROWS {
            let left = simd.splat_f32s(left[row]);
            for vector in 0..VECTORS {
                sums[row][vector] = simd.mul_add_e_f32s(left, right[vector], sums[row][vector]);
            }
        }
    }
    for (row, sums) in sums.into_iter().enumerate() {
        let out = &mut out[row * stride..][..PANEL];
        S::as_mut_simd_f32s(out).0.copy_from_slice(&sums);
    }
}

/// `x ↦ x · Φ(x)`, in place.
pub(super) struct Gelu<'a>(pub(super) &'a mut [f32]);

impl WithSimd for Gelu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for x in self.0 {
            *x = 0.5 * *x * (1.0 + error_function(*x * std::f32::consts::FRAC_1_SQRT_2));
        }
    }
}

/// Scales the first `width` numbers of each row of `stride` numbers and replaces them by their softmax.
pub(super) struct Softmax<'a> {
    pub(super) rows: &'a mut [f32],
    pub(super) stride: usize,
    pub(super) width: usize,
    pub(super) scale: f32,
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for row in self.rows.chunks_exact_mut(self.stride) {
            row[self.width..].fill(f32::NEG_INFINITY);
            let most = folded(row, f32::NEG_INFINITY, |a, b| if a > b { a } else { b });
            for x in row.iter_mut() {
                *x = exponential((*x - most) * self.scale);
            }
            let share = 1.0 / folded(&row[..], 0.0, |a, b| a + b);
            for x in row {
                *x *= share;
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

/// e to the power of x, with a relative error of about 2e-7. x = n·ln 2 + r with |r| ≤ ½ ln 2: e^r by Taylor's series, and n
/// added to the exponent. Zero below -87.
#[inline(always)]
fn exponential(x: f32) -> f32 {
    // Adding this moves the integer part of a small number into the lowest bits.
    const WHOLE: f32 = 12_582_912.0;
    // ln 2 in two parts: the product of the first with n is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > -87.0 { x } else { -87.0 };
    let x = if x < 88.0 { x } else { 88.0 };
    let shifted = x * std::f32::consts::LOG2_E + WHOLE;
    let n = shifted - WHOLE;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let series = 1.0 / 720.0;
    let series = series * r + 1.0 / 120.0;
    let series = series * r + 1.0 / 24.0;
    let series = series * r + 1.0 / 6.0;
    let series = series * r + 0.5;
    let series = series * r + 1.0;
    let series = series * r + 1.0;
    series * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()))
}

/// Formula 7.1.26 of Abramowitz and Stegun, with an error below 1.5e-7.
#[inline(always)]
fn error_function(x: f32) -> f32 {
    let size = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * size);
    let series = 1.061_405_4;
    let series = series * t - 1.453_152;
    let series = series * t + 1.421_413_7;
    let series = series * t - 0.284_496_74;
    let series = series * t + 0.254_829_6;
    (1.0 - series * t * exponential(-size * size)).copysign(x)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use super::*;

    /// Numbers that look random and are the same each time.
    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7919 + 13) % 1000) as f32 / 500.0 - 1.0).collect()
    }

    #[test]
    fn a_product_is_what_the_schoolbook_says() {
        for (count, width, columns) in [(1, 16, 16), (2, 5, 32), (6, 16, 16), (13, 48, 40), (17, 3, 7)] {
            let (left, right, bias) = (numbers(count * (width + 3)), numbers(width * columns), numbers(columns.next_multiple_of(PANEL)));
            let mut laid = Vec::new();
            Rows { numbers: &right, stride: columns, count: width, width: columns }.panels(&mut laid);
            let turned: Vec<f32> = (0..columns * width).map(|at| right[at % width * columns + at / width]).collect();
            let mut same = Vec::new();
            Rows { numbers: &turned, stride: width, count: columns, width }.transposed_panels(&mut same);
            assert_eq!(laid, same);
            let stride = columns.next_multiple_of(PANEL) + 4;
            for arch in [Arch::new(), Arch::Scalar] {
                let mut out = vec![f32::NAN; count * stride];
                let left = Rows { numbers: &left, stride: width + 3, count, width };
                Product { left, right: &laid, bias: Some(&bias), out: &mut out, stride }.compute(arch, &mut Vec::new());
                for (row, column) in (0..count).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let exact: f64 = (0..width)
                        .map(|at| f64::from(left.numbers[row * left.stride + at]) * f64::from(right[at * columns + column]))
                        .sum();
                    let exact = exact + f64::from(bias[column]);
                    let found = f64::from(out[row * stride + column]);
                    assert!((found - exact).abs() < 1e-5, "{count}×{width}×{columns} at {row},{column}: {found}, not {exact}");
                }
            }
        }
    }

    #[test]
    fn the_exponential_is_true_wherever_softmax_uses_it() {
        for step in -8700..=8800_i32 {
            let x = step as f32 / 100.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exponential(x)) / exact - 1.0).abs() < 5e-7, "{x}: {} is not {exact}", exponential(x));
        }
        assert!(exponential(f32::NEG_INFINITY) < 1e-37);
        assert!(exponential(1000.0).is_finite());
    }

    #[test]
    fn the_error_function_agrees_with_known_values() {
        // From the tables of the same handbook.
        let known = [(0.0, 0.0), (0.1, 0.112_462_92), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (2.0, 0.995_322_3), (4.0, 1.0)];
        for (x, exact) in known {
            for (x, exact) in [(x, exact), (-x, -exact)] {
                assert!((error_function(x) - exact).abs() < 4e-7, "{x}: {} is not {exact}", error_function(x));
            }
        }
    }

    #[test]
    fn a_softmax_leaves_no_share_to_what_does_not_count() {
        let mut rows = vec![1.0, 2.0, 3.0];
        rows.resize(PANEL, 50.0);
        Arch::new().dispatch(Softmax { rows: &mut rows, stride: PANEL, width: 3, scale: 2.0 });
        let whole: f32 = [2.0_f32, 4.0, 6.0].iter().map(|x| x.exp()).sum();
        for (at, exact) in [2.0_f32, 4.0, 6.0].into_iter().map(|x| x.exp() / whole).enumerate() {
            assert!((rows[at] - exact).abs() < 1e-6, "{} is not {exact}", rows[at]);
        }
        assert!(rows[3..].iter().all(|&share| share < 1e-30));
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
