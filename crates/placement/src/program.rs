//! The linear program of a batch: equation 6 with real instead of binary variables.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

use crate::item::Item;
use crate::loads::NodeLoads;

/// The weight of the sum of all loads beside the greatest one. Without it, the loads of all nodes but the greatest would be left to
/// chance.
const TOTAL_WEIGHT: f64 = 1e-3;
/// Coefficients below this share of the greatest one are raised to it, which keeps the program well-conditioned.
const COEFFICIENT_SHARE_MIN: f64 = 1e-5;

/// The solver has failed: a defect in it, as every batch has a solution.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("the linear program of the placement was not solved: {0}")]
pub(crate) struct Unsolved(String);

/// The share of a replica on each landing of each connection, from 0 to 1, whose sum is `backups` for each connection.
/// Connections with no more landings than backups have replicas on all of them.
pub(crate) fn solve(items: &[Item], backups: usize, loads: &NodeLoads) -> Result<Vec<Vec<f64>>, Unsolved> {
    let is_free = |item: &&Item| item.landings.len() > backups;
    let churns =
        items.iter().filter(is_free).flat_map(|item| (0..item.landings.len()).map(|landing| item.churn(landing)));
    let unit = churns.fold(0.0, f64::max);
    if unit <= 0.0 {
        return Ok(items.iter().map(|item| vec![1.0; item.landings.len()]).collect());
    }
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let greatest = problem.add_var(1.0, (0.0, f64::INFINITY));
    let mut rows: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); flow::NODES_MAX];
    let mut uncovered = [0.0; flow::NODES_MAX];
    let mut shares: Vec<Vec<Variable>> = Vec::with_capacity(items.len());
    for item in items {
        let mut variables = Vec::new();
        for landing in 0..item.landings.len() {
            if !is_free(&item) {
                break;
            }
            let churn = (item.churn(landing) / unit).max(COEFFICIENT_SHARE_MIN);
            let node = usize::from(item.landings[landing].0.0);
            let share = problem.add_var(-TOTAL_WEIGHT * churn, (0.0, 1.0));
            rows[node].push((share, -churn));
            uncovered[node] += churn;
            variables.push(share);
        }
        if !variables.is_empty() {
            let sum: Vec<_> = variables.iter().map(|variable| (*variable, 1.0)).collect();
            problem.add_constraint(&sum[..], ComparisonOp::Eq, backups as f64);
        }
        shares.push(variables);
    }
    // Loads count from the smallest one: what all nodes have in common decides nothing.
    let base = (0..flow::NODES_MAX).filter(|node| !rows[*node].is_empty()).map(|node| loads.of(node));
    let base = base.fold(f64::INFINITY, f64::min);
    for (node, mut row) in rows.into_iter().enumerate().filter(|(_, row)| !row.is_empty()) {
        row.push((greatest, -1.0));
        problem.add_constraint(&row[..], ComparisonOp::Le, -(loads.of(node) - base) / unit - uncovered[node]);
    }
    let solution = problem.solve().map_err(|error| Unsolved(error.to_string()))?;
    let solution = solution.into_solution().map_err(|_| Unsolved("interrupted".to_owned()))?;
    let value = |variable: &Variable| solution.var_value(*variable).clamp(0.0, 1.0);
    Ok(items
        .iter()
        .zip(&shares)
        .map(
            |(item, shares)| {
                if shares.is_empty() { vec![1.0; item.landings.len()] } else { shares.iter().map(value).collect() }
            },
        )
        .collect())
}
