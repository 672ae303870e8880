//! Chooses how many points a walk through a graph must keep to find nearly all of the nearest.
//!
//! The number depends on the vectors: it is small if they lie in clusters, and large if their distances are all about
//! the same. So a writer tries some widths with points of the segment whose nearest points it has computed.

use std::collections::BinaryHeap;

use sstable::SSTableError;

use super::beam::{Beam, Near, Nodes, WIDTH_MIN};
use super::graph::{Graph, Points};
use super::space::SearchTarget;

/// The number of points that are searched, and how many nearest points of each.
const SAMPLES: usize = 40;
const NEAREST: usize = 10;
/// The part of the nearest points that a walk must find. It is more than 95 %, because points of the graph are found
/// more easily than others.
const RECALL: f32 = 0.98;
/// The widest walk that is tried.
const WIDTH_MAX: usize = 1 << 13;
/// A graph pays if a walk visits at most this part of all points.
const SEEN_PART: usize = 2;

/// Points in memory with their graph.
struct Built<'g> {
    points: Points<'g>,
    graph: &'g Graph,
}

impl Nodes for Built<'_> {
    fn count(&self) -> usize {
        self.points.len()
    }

    fn entry(&self) -> Option<u32> {
        Some(self.graph.entry)
    }

    fn above(&self) -> Option<Box<dyn Nodes + '_>> {
        let above = self.graph.above.as_deref()?;
        Some(Box::new(Built { points: above.points(), graph: &above.graph }))
    }

    fn distance(&self, node: u32, target: &SearchTarget) -> Result<f32, SSTableError> {
        Ok(target.distance(self.points.point(node)))
    }

    fn neighbours(&self, node: u32, out: &mut Vec<u32>) -> Result<(), SSTableError> {
        out.clear();
        out.extend_from_slice(&self.graph.neighbours[node as usize]);
        Ok(())
    }
}

/// The least width with which walks find nearly all of the nearest points; `None` if comparing
/// all points takes less time than such walks.
pub(super) fn measure(points: &Points<'_>, graph: &Graph) -> Result<Option<usize>, SSTableError> {
    let nodes = Built { points: *points, graph };
    let count = points.len();
    let samples = (0..SAMPLES.min(count)).map(|sample| (sample * count / SAMPLES.min(count)) as u32);
    let looked_for: Vec<(SearchTarget, Vec<u32>)> = samples
        .map(|node| {
            let target = SearchTarget::of_point(points.point(node));
            let nearest = nearest(&nodes, &target)?;
            Ok((target, nearest))
        })
        .collect::<Result<_, SSTableError>>()?;
    let mut width = WIDTH_MIN;
    while width <= WIDTH_MAX {
        let (mut found, mut seen, mut wanted) = (0, 0, 0);
        for (target, nearest) in &looked_for {
            let mut beam = Beam::with_width(count, width);
            while !beam.walk(&nodes, target, usize::MAX)? {}
            for _ in 0..nearest.len() {
                found += usize::from(beam.take().is_some_and(|near| nearest.contains(&near.node)));
            }
            wanted += nearest.len();
            seen += beam.seen_count();
        }
        if seen * SEEN_PART > looked_for.len() * count {
            return Ok(None);
        }
        if found as f32 >= wanted as f32 * RECALL {
            return Ok(Some(width));
        }
        width *= 2;
    }
    Ok(None)
}

/// The points that are nearest to a target.
fn nearest(nodes: &Built<'_>, target: &SearchTarget) -> Result<Vec<u32>, SSTableError> {
    let mut nearest = BinaryHeap::new();
    for node in 0..nodes.count() as u32 {
        nearest.push(Near { distance: nodes.distance(node, target)?, node });
        if nearest.len() > NEAREST {
            nearest.pop();
        }
    }
    Ok(nearest.into_iter().map(|near| near.node).collect())
}

#[cfg(test)]
mod tests {
    use testkit::{Random, seed};

    use super::super::graph;
    use super::*;

    const CLUSTERS: usize = 12;
    const DIMENSION: usize = 24;

    fn near(random: &mut Random, center: &[f32], spread: f32) -> Vec<f32> {
        // The sum of some uniform numbers has nearly a normal distribution.
        let normal = |random: &mut Random| (0..6).map(|_| random.below(1000) as f32 / 1000.0 - 0.5).sum::<f32>();
        center.iter().map(|value| value + spread * normal(random)).collect()
    }

    #[test]
    fn a_narrow_walk_finds_the_right_one_of_dense_clusters() {
        let mut random = Random(seed(22));
        let origin = vec![0.0; DIMENSION];
        let centers: Vec<Vec<f32>> = (0..CLUSTERS).map(|_| near(&mut random, &origin, 1.0)).collect();
        let point = |random: &mut Random| {
            let center = &centers[random.below(CLUSTERS)];
            near(random, center, 0.02)
        };
        let values: Vec<f32> = (0..12_000).flat_map(|_| point(&mut random)).collect();
        let points = Points { coordinates: DIMENSION, values: &values };
        let graph = graph::build(&points, &mut || true).unwrap();
        let nodes = Built { points, graph: &graph };
        let (mut hits, mut seen, searches) = (0, 0, 100);
        for _ in 0..searches {
            let target = SearchTarget::of_point(&point(&mut random));
            let nearest = nearest(&nodes, &target).unwrap();
            let mut beam = Beam::with_width(points.len(), WIDTH_MIN / 2);
            while !beam.walk(&nodes, &target, usize::MAX).unwrap() {}
            hits += (0..NEAREST).filter(|_| beam.take().is_some_and(|near| nearest.contains(&near.node))).count();
            seen += beam.seen_count();
        }
        assert!(hits * 100 >= searches * NEAREST * 97, "{hits} of {}", searches * NEAREST);
        assert!(seen <= searches * points.len() / 10, "{} points were seen in a search", seen / searches);
    }
}
