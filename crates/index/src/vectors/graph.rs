//! Building a graph over points, in which a walk finds the nearest points to a target.
//!
//! It has one layer, as the graphs of DiskANN. Points are added in random order: the points near a new one are searched
//! for in the graph so far, and of them those become its neighbours that lie in different directions. In the end every
//! point can be reached from the entry.

use types::similarity::squared_distance;

/// The most neighbours of a point in a finished graph.
pub(crate) const DEGREE_MAX: usize = 32;
/// The most neighbours while points are added. The rest of the places are for points that could not be reached.
const DEGREE_BUILT: usize = 28;
/// How many neighbours a point may collect before the best ones are chosen again.
const DEGREE_SLACK: usize = 36;
/// How many near points a search for neighbours keeps. It is Cassandra's `construction_beam_width`.
const BEAM: usize = 100;
/// A point is left out as a neighbour if another neighbour is this much nearer to it (of squared distances).
const SPREAD: f32 = 1.44;
/// The number of points between two checks of whether the build should continue.
const POINTS_PER_LOOK: usize = 64;

/// Points of the same number of coordinates.
pub(crate) struct Points<'p> {
    pub coordinates: usize,
    pub values: &'p [f32],
}

impl Points<'_> {
    pub fn len(&self) -> usize {
        self.values.len() / self.coordinates.max(1)
    }

    pub fn point(&self, node: u32) -> &[f32] {
        let start = node as usize * self.coordinates;
        &self.values[start..start + self.coordinates]
    }

    fn distance(&self, one: u32, other: u32) -> f32 {
        squared_distance(self.point(one), self.point(other))
    }
}

/// A finished graph: the neighbours of each point.
pub(crate) struct Graph {
    pub neighbours: Vec<Vec<u32>>,
    /// Where searches begin.
    pub entry: u32,
}

/// A point and its distance from another.
type Near = (f32, u32);

/// Builds a graph of at least one point. `None` if `goes_on` says that it should not.
pub(crate) fn build(points: &Points<'_>, goes_on: &mut dyn FnMut() -> bool) -> Option<Graph> {
    let order = shuffled(points.len());
    let entry = middle(points);
    let mut builder = Builder {
        points,
        neighbours: vec![Vec::new(); points.len()],
        seen: vec![0; points.len()],
        search: 0,
        near: Vec::new(),
    };
    for (count, node) in order.into_iter().filter(|node| *node != entry).enumerate() {
        if count % POINTS_PER_LOOK == 0 && !goes_on() {
            return None;
        }
        builder.add(node, entry);
    }
    builder.connect(entry, goes_on)?;
    Some(Graph { neighbours: builder.neighbours, entry })
}

/// All numbers below `count` in an order that looks random and is always the same.
fn shuffled(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for place in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(place, ((state >> 33) as usize) % (place + 1));
    }
    order
}

/// The point that is nearest to the mean of all.
fn middle(points: &Points<'_>) -> u32 {
    let mut mean = vec![0.0; points.coordinates];
    for point in points.values.chunks_exact(points.coordinates) {
        mean.iter_mut().zip(point).for_each(|(sum, value)| *sum += value / points.len() as f32);
    }
    let all = (0..points.len() as u32).map(|node| (squared_distance(&mean, points.point(node)), node));
    all.min_by(|one, other| one.0.total_cmp(&other.0)).map_or(0, |(_, node)| node)
}

struct Builder<'p> {
    points: &'p Points<'p>,
    neighbours: Vec<Vec<u32>>,
    /// The number of the last search that saw each point.
    seen: Vec<u32>,
    search: u32,
    /// The nearest points that the current search found, and whether their neighbours were looked at.
    near: Vec<(Near, bool)>,
}

impl Builder<'_> {
    fn add(&mut self, node: u32, entry: u32) {
        self.search(node, entry);
        let candidates: Vec<Near> = self.near.iter().map(|(near, _)| *near).filter(|near| near.1 != node).collect();
        let chosen = self.choose(&candidates);
        for other in &chosen {
            self.link(*other, node);
        }
        self.neighbours[node as usize] = chosen;
    }

    /// Finds points near a node, into `near`, the nearest first.
    fn search(&mut self, node: u32, entry: u32) {
        self.search += 1;
        self.near.clear();
        self.see(entry, node);
        while let Some(place) = self.near.iter().position(|(_, is_done)| !is_done) {
            let ((_, next), is_done) = &mut self.near[place];
            *is_done = true;
            let next = *next as usize;
            for place in 0..self.neighbours[next].len() {
                self.see(self.neighbours[next][place], node);
            }
        }
    }

    /// Takes a point into `near` if it is one of the nearest to a node.
    fn see(&mut self, other: u32, node: u32) {
        if std::mem::replace(&mut self.seen[other as usize], self.search) == self.search {
            return;
        }
        let distance = self.points.distance(other, node);
        if self.near.len() >= BEAM && self.near.last().is_some_and(|((worst, _), _)| distance >= *worst) {
            return;
        }
        let place = self.near.partition_point(|((nearer, _), _)| *nearer <= distance);
        self.near.insert(place, ((distance, other), false));
        self.near.truncate(BEAM);
    }

    /// The neighbours of a point among candidates, which come with their distances from it, the nearest first.
    fn choose(&self, candidates: &[Near]) -> Vec<u32> {
        let mut chosen: Vec<u32> = Vec::with_capacity(DEGREE_SLACK);
        for (distance, candidate) in candidates {
            if chosen.len() >= DEGREE_BUILT {
                break;
            }
            let is_covered = |known: &u32| self.points.distance(*known, *candidate) * SPREAD <= *distance;
            if !chosen.iter().any(is_covered) {
                chosen.push(*candidate);
            }
        }
        chosen
    }

    /// Makes a point a neighbour of a node, which may lose others.
    fn link(&mut self, node: u32, other: u32) {
        let neighbours = &mut self.neighbours[node as usize];
        neighbours.push(other);
        if neighbours.len() >= DEGREE_SLACK {
            self.shorten(node);
        }
    }

    /// Leaves only the best neighbours of a node.
    fn shorten(&mut self, node: u32) {
        let with_distance = |other: &u32| (self.points.distance(node, *other), *other);
        let mut candidates: Vec<Near> = self.neighbours[node as usize].iter().map(with_distance).collect();
        candidates.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        self.neighbours[node as usize] = self.choose(&candidates);
    }

    /// Reduces the neighbours of every point to the limit, and makes every point reachable. `None` if the build should
    /// not continue.
    fn connect(&mut self, entry: u32, goes_on: &mut dyn FnMut() -> bool) -> Option<()> {
        for node in 0..self.points.len() as u32 {
            if self.neighbours[node as usize].len() > DEGREE_BUILT {
                self.shorten(node);
            }
        }
        let mut is_reached = vec![false; self.points.len()];
        self.reach(entry, &mut is_reached);
        for node in 0..self.points.len() as u32 {
            if is_reached[node as usize] {
                continue;
            }
            if !goes_on() {
                return None;
            }
            // All that a search finds can be reached.
            self.search(node, entry);
            let has_place = |near: &Near| self.neighbours[near.1 as usize].len() < DEGREE_MAX;
            let found = self.near.iter().map(|(near, _)| *near).find(has_place).map(|(_, found)| found);
            let free = |node: &u32| is_reached[*node as usize] && self.neighbours[*node as usize].len() < DEGREE_MAX;
            let found = found.or_else(|| (0..self.points.len() as u32).find(free));
            self.neighbours[found? as usize].push(node);
            self.reach(node, &mut is_reached);
        }
        Some(())
    }

    fn reach(&self, node: u32, is_reached: &mut [bool]) {
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            if !std::mem::replace(&mut is_reached[node as usize], true) {
                stack.extend_from_slice(&self.neighbours[node as usize]);
            }
        }
    }
}
