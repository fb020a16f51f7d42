//! Vectors like embeddings of documents: around centers, one for each subject, and the same in every run.

#![expect(clippy::cast_precision_loss, reason = "counts are small")]

/// Numbers that are the same in every run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % end as u64).expect("it is below a usize")
    }

    /// About normally distributed.
    fn normal(&mut self) -> f32 {
        (0..6).map(|_| (self.roll() >> 40) as f32 / (1_u64 << 24) as f32).sum::<f32>() - 3.0
    }
}

pub struct Clusters {
    centers: Vec<Vec<f32>>,
    pub dice: Dice,
}

impl Clusters {
    pub fn new(count: usize, dimensions: usize) -> Self {
        let mut dice = Dice::new(7);
        let centers = (0..count).map(|_| unit((0..dimensions).map(|_| dice.normal()).collect())).collect();
        Self { centers, dice }
    }

    /// A vector of length 1, and its cluster.
    pub fn vector(&mut self) -> (Vec<f32>, usize) {
        let cluster = self.dice.below(self.centers.len());
        let spread = 1.2 / (self.centers[cluster].len() as f32).sqrt();
        let vector = self.centers[cluster].clone().into_iter().map(|value| value + spread * self.dice.normal()).collect();
        (unit(vector), cluster)
    }
}

fn unit(vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.into_iter().map(|value| value / length).collect()
}

/// The places of the nearest, of those that are let through, by an exact computation.
pub fn nearest(vectors: &[Vec<f32>], query: &[f32], count: usize, through: impl Fn(usize) -> bool) -> Vec<usize> {
    let dot = |vector: &[f32]| vector.iter().zip(query).map(|(one, other)| one * other).sum::<f32>();
    let mut all: Vec<_> =
        vectors.iter().enumerate().filter(|(place, _)| through(*place)).map(|(place, vector)| (dot(vector), place)).collect();
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    all.into_iter().take(count).map(|(_, place)| place).collect()
}
