//! A best-first walk through a graph. It returns points in order of their distance, and continues as long as the caller
//! asks for more.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

use sstable::SSTableError;

use super::graph::{WIDTH_ABOVE, below};
use super::space::SearchTarget;

/// The least number of nearest points that a walk keeps. It ends when the neighbours of all of them were visited.
pub(crate) const WIDTH_MIN: usize = 64;
/// The part of the kept points that a walk returns: the last ones are the least certain.
const CERTAIN_PART: usize = 4;
/// The width is multiplied by this when more points are asked for.
const WIDER: usize = 2;

/// A walk in a graph above ends after this many points, because nothing interrupts it. It needs a few hundred, unless
/// many points are equal.
const STEPS_ABOVE_MAX: usize = 2_000;

/// The points of a graph and their neighbours.
pub(crate) trait Nodes {
    /// The number of points.
    fn count(&self) -> usize;

    /// The point at which walks begin; `None` if there is no graph.
    fn entry(&self) -> Option<u32>;

    /// The graph above this one; `None` if there is none.
    fn above(&self) -> Option<Box<dyn Nodes + '_>>;

    /// The distance of a point to the target, as [`SearchTarget::distance`] says.
    fn distance(&self, node: u32, target: &SearchTarget) -> Result<f32, SSTableError>;

    /// Appends these points with their distances to the target.
    fn distances(&self, nodes: Range<u32>, target: &SearchTarget, out: &mut Vec<Near>) -> Result<(), SSTableError> {
        nodes.into_iter().try_for_each(|node| {
            out.push(Near { distance: self.distance(node, target)?, node });
            Ok(())
        })
    }

    /// Replaces `out` with the neighbours of a point, all below [`Nodes::count`].
    fn neighbours(&self, node: u32, out: &mut Vec<u32>) -> Result<(), SSTableError>;
}

/// A point and its distance to the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Near {
    pub distance: f32,
    pub node: u32,
}

impl Eq for Near {}

impl Ord for Near {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.node.cmp(&other.node))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A walk. Its memory grows with the number of visited points.
#[derive(Debug)]
pub(crate) struct Beam {
    /// A bit for each point: whether it was visited.
    visited: Vec<u64>,
    /// The distances of all points that were visited.
    distances: Vec<f32>,
    /// The kept points whose neighbours were not read yet.
    open: BinaryHeap<Reverse<Near>>,
    /// The visited points that were not returned yet.
    ready: BinaryHeap<Reverse<Near>>,
    /// The points that were beyond the bound when they were visited. They become open and ready when the walk gets
    /// wider.
    beyond: Vec<Near>,
    /// The distances of the nearest points, of which there are at most as many as the width. The greatest is the bound
    /// of the walk.
    nearest: BinaryHeap<Bound>,
    width: usize,
    given: usize,
    /// The number of visited points in the graphs above.
    seen_above: usize,
    /// Without a graph: the next point to measure, and the points before it until all are measured.
    next: u32,
    all: Vec<Near>,
    neighbours: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound(f32);

impl Eq for Bound {}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Beam {
    /// A walk among `count` points with this initial width, which will be asked for about `wanted` points.
    pub fn new(count: usize, width: usize, wanted: usize) -> Beam {
        Beam::with_width(count, WIDTH_MIN.max(width).max(wanted.saturating_mul(CERTAIN_PART)))
    }

    /// A walk among `count` points that keeps this many of the nearest at first.
    pub fn with_width(count: usize, width: usize) -> Beam {
        Beam {
            visited: vec![0; count.div_ceil(64)],
            distances: Vec::new(),
            open: BinaryHeap::new(),
            ready: BinaryHeap::new(),
            beyond: Vec::new(),
            nearest: BinaryHeap::new(),
            width,
            given: 0,
            seen_above: 0,
            next: 0,
            all: Vec::new(),
            neighbours: Vec::new(),
        }
    }

    /// Continues the walk, and measures about `steps` points. Returns whether the next nearest point is known.
    pub fn walk(&mut self, nodes: &dyn Nodes, target: &SearchTarget, steps: usize) -> Result<bool, SSTableError> {
        let Some(entry) = nodes.entry() else { return self.scan_all(nodes, target, steps) };
        if self.distances.is_empty() {
            self.visit(entry, nodes, target)?;
            self.descend(nodes, target)?;
        }
        let until = self.distances.len().saturating_add(steps);
        loop {
            let next = match self.open.peek().copied() {
                Some(Reverse(next)) if !self.is_beyond(next.distance) => next,
                None if self.beyond.is_empty() => return Ok(true),
                _ if self.given < self.width / CERTAIN_PART => return Ok(true),
                _ => {
                    self.widen();
                    continue;
                }
            };
            if self.distances.len() >= until {
                return Ok(false);
            }
            self.open.pop();
            let mut neighbours = std::mem::take(&mut self.neighbours);
            nodes.neighbours(next.node, &mut neighbours)?;
            for node in &neighbours {
                self.visit(*node, nodes, target)?;
            }
            self.neighbours = neighbours;
        }
    }

    /// Visits the points that a narrow walk in the graph above finds.
    fn descend(&mut self, nodes: &dyn Nodes, target: &SearchTarget) -> Result<(), SSTableError> {
        let Some(above) = nodes.above() else { return Ok(()) };
        let mut beam = Beam::with_width(above.count(), WIDTH_ABOVE);
        beam.walk(&*above, target, STEPS_ABOVE_MAX)?;
        for _ in 0..WIDTH_ABOVE {
            let Some(near) = beam.take() else { break };
            self.visit(below(near.node), nodes, target)?;
        }
        self.seen_above = beam.seen_count();
        Ok(())
    }

    fn scan_all(&mut self, nodes: &dyn Nodes, target: &SearchTarget, steps: usize) -> Result<bool, SSTableError> {
        let until = (self.next as usize).saturating_add(steps).min(nodes.count()) as u32;
        if self.next < until {
            let mut ready = std::mem::take(&mut self.all);
            nodes.distances(self.next..until, target, &mut ready)?;
            (self.next, self.all) = (until, ready);
        }
        let is_done = self.next as usize >= nodes.count();
        if is_done {
            self.ready.extend(std::mem::take(&mut self.all).into_iter().map(Reverse));
        }
        Ok(is_done)
    }

    /// Whether no point at this distance can be among the nearest.
    fn is_beyond(&self, distance: f32) -> bool {
        self.nearest.len() >= self.width && self.nearest.peek().is_some_and(|bound| distance > bound.0)
    }

    fn visit(&mut self, node: u32, nodes: &dyn Nodes, target: &SearchTarget) -> Result<(), SSTableError> {
        let (word, bit) = (node as usize / 64, 1 << (node % 64));
        // The reader of the graph has refused neighbours that do not exist.
        let Some(word) = self.visited.get_mut(word) else { return Ok(()) };
        if *word & bit != 0 {
            return Ok(());
        }
        *word |= bit;
        let near = Near { distance: nodes.distance(node, target)?, node };
        self.distances.push(near.distance);
        if self.is_beyond(near.distance) {
            self.beyond.push(near);
            return Ok(());
        }
        self.open.push(Reverse(near));
        self.ready.push(Reverse(near));
        self.nearest.push(Bound(near.distance));
        if self.nearest.len() > self.width {
            self.nearest.pop();
        }
        Ok(())
    }

    /// Makes the walk keep more points and continue.
    fn widen(&mut self) {
        self.width = self.width.saturating_mul(WIDER);
        let mut distances = self.distances.clone();
        if distances.len() > self.width {
            distances.select_nth_unstable_by(self.width, f32::total_cmp);
            distances.truncate(self.width);
        }
        self.nearest = distances.into_iter().map(Bound).collect();
        for near in std::mem::take(&mut self.beyond) {
            if self.is_beyond(near.distance) {
                self.beyond.push(near);
            } else {
                self.open.push(Reverse(near));
                self.ready.push(Reverse(near));
            }
        }
    }

    /// The next nearest point, if [`Beam::walk`] returned that it is known; `None` if all points were returned.
    pub fn peek(&self) -> Option<Near> {
        self.ready.peek().map(|Reverse(near)| *near)
    }

    /// Takes the point that `peek` returns. The next one is known when the walk has continued.
    pub fn take(&mut self) -> Option<Near> {
        let Reverse(near) = self.ready.pop()?;
        self.given += 1;
        Some(near)
    }

    /// The number of visited points, including those in the graphs above.
    pub fn seen_count(&self) -> usize {
        self.distances.len() + self.seen_above
    }

    /// The memory of the walk, bytes.
    pub fn held_bytes(&self) -> usize {
        let near = self.open.capacity() + self.ready.capacity() + self.beyond.capacity() + self.all.capacity();
        size_of_val(&*self.visited) + near * size_of::<Near>() + (self.distances.len() + self.nearest.len()) * 4
    }
}
