//! Building a graph over points, in which a walk finds the nearest points to a target.
//!
//! A graph over many points has another one above it, over about one in 16 of them, and so on, like the layers of HNSW.
//! A walk begins near the points that it found in the graph above. This matters for points in clusters: nearly all
//! neighbours of a point belong to its own cluster, so a walk in a single graph would have to be very wide to reach the
//! right one.
//!
//! Points are added in random order, those of the graph above first. The points near a new one are searched in the
//! graph so far. Those of them that lie in different directions become its neighbours. In the end every point can be
//! reached from the entry.

use types::similarity::squared_distance;

/// The most neighbours of a point in a finished graph.
pub(crate) const DEGREE_MAX: usize = 32;
/// The most neighbours while points are added. The rest of the places are for points that could not be reached.
const DEGREE_BUILT: usize = 28;
/// The number of neighbours that a point may collect before the best ones are chosen again.
const DEGREE_SLACK: usize = 36;
/// The number of near points that a search for neighbours keeps: Cassandra's `construction_beam_width`.
const BEAM: usize = 100;
/// A candidate is left out if it is this much nearer to another neighbour than to the point (a factor of squared
/// distances). With a greater factor no point of a cluster in many dimensions would be left out, and the points at its
/// border would be neighbours of none.
const SPREAD: f32 = 1.05;
/// The graph above has one of this many points.
const PART: usize = 16;
/// A graph above has at least this many points.
const ABOVE_MIN: usize = 2;
/// The number of near points that a search in a graph above keeps.
pub(crate) const WIDTH_ABOVE: usize = 8;
/// The number of points between two checks of whether the build should continue.
const POINTS_PER_LOOK: usize = 64;

/// Points of the same number of coordinates.
#[derive(Clone, Copy)]
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
    /// Where searches begin. It is 0 in a graph above another one.
    pub entry: u32,
    /// `None` if there are few points.
    pub above: Option<Box<Above>>,
}

/// The graph above another one, and its points, which are copies of some of that one's.
pub(crate) struct Above {
    values: Vec<f32>,
    coordinates: usize,
    pub graph: Graph,
}

impl Above {
    pub fn points(&self) -> Points<'_> {
        Points { coordinates: self.coordinates, values: &self.values }
    }
}

/// The number of points of the graph above one of `count` points; `None` if there is none.
pub(crate) fn count_above(count: usize) -> Option<usize> {
    Some(count / PART).filter(|above| *above >= ABOVE_MIN)
}

/// The number that a point of the graph above has in the graph below: a random one of `PART` consecutive numbers,
/// because clusters may recur in the order of rows.
pub(crate) fn below(above: u32) -> u32 {
    let mut mixed = u64::from(above).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    above.wrapping_mul(PART as u32).wrapping_add((mixed >> 32) as u32 % PART as u32)
}

/// A point and its distance from another.
type Near = (f32, u32);

/// Builds a graph of at least one point. `None` if `goes_on` stops the build.
pub(crate) fn build(points: &Points<'_>, goes_on: &mut dyn FnMut() -> bool) -> Option<Graph> {
    build_from(points, middle(points), goes_on)
}

/// Builds the graphs above, and then this graph with this entry.
fn build_from(points: &Points<'_>, entry: u32, goes_on: &mut dyn FnMut() -> bool) -> Option<Graph> {
    let above = match count_above(points.len()) {
        Some(count) => Some(Box::new(build_above(points, count as u32, goes_on)?)),
        None => None,
    };
    let mut builder = Builder::new(points, above.as_deref());
    let count_above = above.as_ref().map_or(0, |above| above.graph.neighbours.len()) as u32;
    let is_there = |node: u32| {
        let above = node / PART as u32;
        if count_above == 0 { node == entry } else { above < count_above && below(above) == node }
    };
    let order = shuffled(points.len()).into_iter().filter(|node| !is_there(*node));
    for (count, node) in order.enumerate() {
        if count % POINTS_PER_LOOK == 0 && !goes_on() {
            return None;
        }
        builder.add(node, entry);
    }
    builder.connect(entry, goes_on)?;
    Some(Graph { neighbours: builder.neighbours, entry, above })
}

fn build_above(points: &Points<'_>, count: u32, goes_on: &mut dyn FnMut() -> bool) -> Option<Above> {
    let coordinates = points.coordinates;
    let values: Vec<f32> = (0..count).flat_map(|node| points.point(below(node))).copied().collect();
    let graph = build_from(&Points { coordinates, values: &values }, 0, goes_on)?;
    Some(Above { values, coordinates, graph })
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

/// A search in one graph.
struct Search {
    /// The number of the last search that saw each point.
    seen: Vec<u32>,
    number: u32,
    /// The nearest points that the current search found, and whether their neighbours were visited.
    near: Vec<(Near, bool)>,
}

impl Search {
    fn new(count: usize) -> Search {
        Search { seen: vec![0; count], number: 0, near: Vec::new() }
    }

    /// Finds points near a target, at most `width`, into `near`, the nearest first.
    fn run(&mut self, points: &Points<'_>, neighbours: &[Vec<u32>], starts: &[u32], target: &[f32], width: usize) {
        self.number += 1;
        self.near.clear();
        starts.iter().for_each(|start| self.see(points, *start, target, width));
        while let Some(place) = self.near.iter().position(|(_, is_done)| !is_done) {
            let ((_, next), is_done) = &mut self.near[place];
            *is_done = true;
            neighbours[*next as usize].iter().for_each(|other| self.see(points, *other, target, width));
        }
    }

    /// Adds a point to `near` if it is one of the nearest to a target.
    fn see(&mut self, points: &Points<'_>, other: u32, target: &[f32], width: usize) {
        if std::mem::replace(&mut self.seen[other as usize], self.number) == self.number {
            return;
        }
        let distance = squared_distance(points.point(other), target);
        if self.near.len() >= width && self.near.last().is_some_and(|((worst, _), _)| distance >= *worst) {
            return;
        }
        let place = self.near.partition_point(|((nearer, _), _)| *nearer <= distance);
        self.near.insert(place, ((distance, other), false));
        self.near.truncate(width);
    }
}

/// Finds points near a target in a graph above and those above it. Returns their numbers in the graph below.
fn descend(above: &Above, searches: &mut [Search], target: &[f32]) -> Vec<u32> {
    let Some((search, rest)) = searches.split_first_mut() else { return Vec::new() };
    let starts = match &above.graph.above {
        Some(higher) => descend(higher, rest, target),
        None => vec![above.graph.entry],
    };
    search.run(&above.points(), &above.graph.neighbours, &starts, target, WIDTH_ABOVE);
    search.near.iter().map(|((_, node), _)| below(*node)).collect()
}

struct Builder<'p> {
    points: &'p Points<'p>,
    neighbours: Vec<Vec<u32>>,
    search: Search,
    above: Option<&'p Above>,
    /// In the graphs above, the next one first.
    searches_above: Vec<Search>,
}

impl<'p> Builder<'p> {
    /// A graph of the points that are in the graph above.
    fn new(points: &'p Points<'p>, above: Option<&'p Above>) -> Builder<'p> {
        let mut neighbours = vec![Vec::new(); points.len()];
        for (node, others) in above.iter().flat_map(|above| above.graph.neighbours.iter().enumerate()) {
            neighbours[below(node as u32) as usize] = others.iter().map(|other| below(*other)).collect();
        }
        let all_above = std::iter::successors(above, |above| above.graph.above.as_deref());
        let searches_above = all_above.map(|above| Search::new(above.graph.neighbours.len())).collect();
        Builder { points, neighbours, search: Search::new(points.len()), above, searches_above }
    }

    fn add(&mut self, node: u32, entry: u32) {
        let starts = match self.above {
            Some(above) => descend(above, &mut self.searches_above, self.points.point(node)),
            None => vec![entry],
        };
        self.search_near(node, &starts);
        let near = self.search.near.iter().map(|(near, _)| *near);
        let candidates: Vec<Near> = near.filter(|near| near.1 != node).collect();
        let chosen = self.choose(&candidates);
        for other in &chosen {
            self.link(*other, node);
        }
        self.neighbours[node as usize] = chosen;
    }

    fn search_near(&mut self, node: u32, starts: &[u32]) {
        self.search.run(self.points, &self.neighbours, starts, self.points.point(node), BEAM);
    }

    /// Chooses the neighbours of a point among candidates, which are given with their distances from it, the nearest
    /// first.
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

    /// Makes a point a neighbour of a node, which may lose other neighbours.
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
            self.search_near(node, &[entry]);
            let has_place = |near: &Near| self.neighbours[near.1 as usize].len() < DEGREE_MAX;
            let found = self.search.near.iter().map(|(near, _)| *near).find(has_place).map(|(_, found)| found);
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
