"""Trees of scikit-learn in model files: as plain arrays, which are checked before new trees are made of them.

Compiled code of scikit-learn follows the numbers of nodes and features in a tree without a check, and its objects have
more attributes than predictions need. So a file holds neither. Attributes besides the nodes come from a classifier of
the same kind that is fitted to a few rows.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

from gaussguru._measured.pool import alone
from gaussguru._utils.linalg import Array
from gaussguru._utils.types import Estimator, MixedArray, Record

# Limits of the value of a leaf, and of the number of threads.
LARGEST, MOST_JOBS = 1e100, 1024

# Kinds, and settings that make a fit to a few rows fast.
KINDS: dict[type, Record] = {
    DecisionTreeClassifier: {"max_depth": 1},
    ExtraTreesClassifier: {"n_estimators": 1, "max_depth": 1},
    HistGradientBoostingClassifier: {"max_iter": 1, "early_stopping": False, "min_samples_leaf": 1},
    RandomForestClassifier: {"n_estimators": 1, "max_depth": 1},
}
TREES = tuple(KINDS)


@dataclass
class Trees:
    """A classifier of trees: its parameters and, if it is fitted, its nodes one tree after the other.

    ``ends`` holds the end of each tree among the nodes; ``nodes`` has an array for each property of a node. Values are
    those of the nodes of a forest, (n_nodes, n_classes), or the baseline scores of boosting, (1, n_scores).
    """

    kind: str
    parameters: Record
    names: list[str] | None = None
    n_features: int = 0
    classes: MixedArray | None = None
    ends: NDArray[np.int64] | None = None
    nodes: dict[str, MixedArray] | None = None
    values: Array | None = None

    def check(self, is_right: Any, words: str) -> None:
        """Raise an error that names the kind of classifier, unless a condition holds."""
        if not is_right:
            raise ValueError(f"its {self.kind} {words}")


def replaced(thing: Any, function: Callable[[Any], Any]) -> Any:
    """Return an object in which every part, at any depth, is the result of a function of it; the object is unchanged.

    Parts of a part that the function changed are left alone.
    """
    result = function(thing)
    if result is not thing:
        return result
    inner = vars(thing) if isinstance(thing, BaseEstimator) or is_dataclass(thing) else thing
    if type(inner) not in (dict, list, tuple):
        return thing
    parts = list(inner.values()) if isinstance(inner, dict) else list(inner)
    results = [replaced(part, function) for part in parts]
    if all(new is old for new, old in zip(results, parts, strict=True)):
        return thing
    if not isinstance(inner, dict):
        return type(inner)(results)
    contents = dict(zip(inner, results, strict=True))
    if inner is thing:
        return contents
    thing = copy.copy(thing)
    vars(thing).update(contents)
    return thing


def without_trees(thing: Any) -> Any:
    """Return a classifier of trees as :class:`Trees`, and any other object unchanged."""
    if type(thing) not in TREES:
        return thing
    kind, parameters = type(thing).__name__, thing.get_params(deep=False)
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"{name} of the {kind} is a {type(value).__name__}, which no model file holds there")
    if not hasattr(thing, "classes_"):
        return Trees(kind, parameters)
    check_is_fitted(thing)
    trees, values = (_boosting_arrays if isinstance(thing, HistGradientBoostingClassifier) else _forest_arrays)(thing)
    return Trees(
        kind,
        parameters,
        names=[str(name) for name in getattr(thing, "feature_names_in_", [])] or None,
        n_features=int(thing.n_features_in_),
        classes=thing.classes_,
        ends=np.cumsum([len(nodes) for nodes in trees], dtype=np.int64),
        nodes={name: np.concatenate([nodes[name] for nodes in trees]) for name in trees[0].dtype.names or ()},
        values=values,
    )


def _boosting_arrays(model: Estimator) -> tuple[list[MixedArray], Array]:
    """Return the nodes of every tree, and the baseline scores."""
    if model._preprocessor is not None:
        raise ValueError(f"the {type(model).__name__} has categorical features, which no model file holds")
    return [tree.nodes for iteration in model._predictors for tree in iteration], model._baseline_prediction


def _forest_arrays(model: Estimator) -> tuple[list[MixedArray], Array]:
    """Return the nodes of every tree, and the probabilities at all nodes, (n_nodes, n_classes)."""
    if model.n_outputs_ != 1:
        raise ValueError(f"the {type(model).__name__} has several outputs, which no model file holds")
    states = [tree.tree_.__getstate__() for tree in getattr(model, "estimators_", [model])]
    return [state["nodes"] for state in states], np.concatenate([state["values"][:, 0] for state in states])


def with_trees(thing: Any) -> Any:
    """Return the classifier of :class:`Trees`, checked, and any other object unchanged."""
    if type(thing) is not Trees:
        return thing
    kind = _checked_kind(thing)
    if thing.nodes is None:
        return kind(**thing.parameters)
    classes = _checked_classes(thing)
    result = copy.copy(_small(kind, thing.n_features, classes.dtype.str, tuple(classes.tolist())))
    (_fill_boosting if kind is HistGradientBoostingClassifier else _fill_forest)(result, thing, len(classes))
    if thing.names is not None:
        result.feature_names_in_ = np.array(thing.names, dtype=object)
    return result.set_params(**thing.parameters)


def _checked_kind(thing: Trees) -> type:
    """Return the class of a classifier; raise unless its parameters are plain values of parameters that it has."""
    kinds = {kind.__name__: kind for kind in TREES}
    if type(thing.kind) is not str or thing.kind not in kinds or type(thing.parameters) is not dict:
        raise ValueError("it has trees of no known kind")
    kind, parameters = kinds[thing.kind], thing.parameters
    is_plain = all(isinstance(value, bool | int | float | str | None) for value in parameters.values())
    thing.check(is_plain and set(parameters) <= set(kind().get_params()), "has other parameters than those of a fit")
    jobs = parameters.get("n_jobs")
    thing.check(isinstance(jobs, int | None) and abs(jobs or 1) <= MOST_JOBS, "has parameters that no fit has")
    thing.check(parameters.get("loss", "log_loss") == "log_loss", "has parameters that no fit has")
    return kind


def _checked_classes(thing: Trees) -> MixedArray:
    """Return the classes; raise if there are fewer than two different ones, or too many features."""
    classes, n = thing.classes, thing.n_features
    if type(classes) is not np.ndarray or classes.ndim != 1 or not 2 <= len(classes) == len(set(classes.tolist())):
        raise ValueError(f"its {thing.kind} has no classes")
    # Numbers in the rows to which a classifier is fitted before it is given its nodes.
    is_small = type(n) is int and 1 <= 2 * n * len(classes) <= 10_000_000
    thing.check(is_small, f"has too many features and classes, {n!r} and {len(classes)}")
    return classes


@lru_cache(maxsize=16)
def _small(kind: type, n_features: int, dtype: str, classes: tuple[Any, ...]) -> Any:
    """Return a classifier that is fitted to a few rows; cached, because a pool has many of the same kind."""
    X = np.random.default_rng(0).standard_normal((2 * len(classes), n_features))
    return alone(kind(**KINDS[kind], random_state=0).fit, X, np.repeat(np.array(classes, dtype=dtype), 2))


def _fill_boosting(result: Estimator, thing: Trees, n_classes: int) -> None:
    """Replace the trees of a fitted boosting classifier."""
    like, n_each = result._predictors[0][0], result.n_trees_per_iteration_
    nodes, ends = _checked_nodes(thing, like.nodes.dtype)
    names = ("left", "right", "feature_idx", "num_threshold")
    _check_structure(thing, nodes, ends, names, nodes["is_leaf"] == 0)
    is_number = not nodes["is_categorical"].any() and (np.abs(nodes["value"]) <= LARGEST).all()
    thing.check(is_number, "has categories, or values that are no numbers")
    thing.check(len(ends) % n_each == 0, "has no whole number of iterations")
    result.train_score_ = result.validation_score_ = np.zeros(0)  # else of the few rows
    result._baseline_prediction = _checked_values(thing, result._baseline_prediction.shape)
    empty = like.binned_left_cat_bitsets[:0], like.raw_left_cat_bitsets[:0]
    trees = [type(like)(np.ascontiguousarray(part), *empty) for part in np.split(nodes, ends[:-1])]
    result._predictors = [trees[k : k + n_each] for k in range(0, len(trees), n_each)]


def _fill_forest(result: Estimator, thing: Trees, n_classes: int) -> None:
    """Replace the trees of a fitted forest or tree."""
    like = getattr(result, "estimators_", [result])[0]
    nodes, ends = _checked_nodes(thing, like.tree_.__getstate__()["nodes"].dtype)
    is_inner = nodes["left_child"] >= 0
    _check_structure(thing, nodes, ends, ("left_child", "right_child", "feature", "threshold"), is_inner)
    are_leaves = (nodes["left_child"][~is_inner] == -1) & (nodes["right_child"][~is_inner] == -1)
    thing.check(are_leaves.all(), "has children that are no nodes after their parents")
    values = _checked_values(thing, (len(nodes), n_classes))
    are_shares = (values >= 0).all() and np.allclose(values.sum(axis=1), 1.0, rtol=1e-6)
    thing.check(are_shares, "has values that are no probabilities")
    parts = zip(np.split(nodes, ends[:-1]), np.split(values, ends[:-1]), strict=True)
    trees = [_tree(like, *part) for part in parts]
    if hasattr(result, "estimators_"):
        result.estimators_ = trees
        return
    thing.check(len(trees) == 1, f"has {len(trees)} trees")
    result.tree_ = trees[0].tree_


def _checked_values(thing: Trees, shape: tuple[int, ...]) -> Array:
    values = thing.values
    if type(values) is not np.ndarray or values.dtype != np.float64 or values.shape != shape:
        raise ValueError(f"values of its {thing.kind} have another shape than {shape}")
    thing.check((np.abs(values) <= LARGEST).all(), f"has values that are no numbers of at most {LARGEST:g}")
    return values


def _checked_nodes(thing: Trees, dtype: np.dtype[Any]) -> tuple[MixedArray, NDArray[np.int64]]:
    """Return all nodes in the dtype of the installed scikit-learn, and the end of every tree among them."""
    nodes, ends = thing.nodes, thing.ends
    if type(nodes) is not dict or set(nodes) != set(dtype.names or ()):
        raise ValueError(f"its {thing.kind} has nodes of another version of scikit-learn")
    if type(ends) is not np.ndarray or ends.dtype != np.int64 or ends.ndim != 1 or not len(ends):
        raise ValueError(f"ends of its {thing.kind} are no whole numbers")
    n = int(ends[-1])
    are_arrays = all(type(part) is np.ndarray and part.shape == (n,) for part in nodes.values())
    thing.check(are_arrays and (np.diff(ends, prepend=0) > 0).all(), "has other nodes than it says")
    result = np.zeros(n, dtype=dtype)
    for name, part in nodes.items():
        thing.check(part.dtype == dtype[name], f"has another type of {name}")
        result[name] = part
    return result, ends


def _check_structure(
    thing: Trees, nodes: MixedArray, ends: NDArray[np.int64], names: tuple[str, ...], is_inner: NDArray[np.bool_]
) -> None:
    """Raise unless inner nodes have children after them in their tree, each of one parent, and features that exist.

    ``names`` are the properties of a node for its left and right child, feature and threshold.
    """
    left, right, feature, threshold = names
    sizes = np.diff(ends, prepend=0)
    first, size = np.repeat(ends - sizes, sizes)[is_inner], np.repeat(sizes, sizes)[is_inner]
    inner, position = nodes[is_inner], np.flatnonzero(is_inner)
    children = np.stack([inner[left], inner[right]]).astype(np.int64)
    are_after = (children > position - first) & (children < size)
    thing.check(are_after.all(), "has children that are no nodes after their parents")
    n_parents = np.bincount((children + first).ravel(), minlength=len(nodes))
    has_parent = np.ones(len(nodes), dtype=bool)
    has_parent[ends - sizes] = False  # roots
    thing.check(np.array_equal(n_parents, has_parent), "has nodes that are not one child of one parent")
    features = inner[feature]
    are_known = (features >= 0) & (features < thing.n_features)
    thing.check(are_known.all(), "has nodes of features that it does not have")
    thing.check(not np.isnan(inner[threshold]).any(), "has thresholds that are no numbers")


def _tree(like: Estimator, nodes: MixedArray, values: Array) -> Any:
    """Return a copy of a tree with other nodes, and probabilities (n_nodes, n_classes)."""
    result, state = copy.copy(like), like.tree_.__getstate__()
    kind, arguments, _ = like.tree_.__reduce__()
    result.tree_ = kind(*arguments)
    state |= {"node_count": len(nodes), "nodes": np.ascontiguousarray(nodes), "values": values[:, np.newaxis].copy()}
    state["max_depth"] = _depth(nodes)
    result.tree_.__setstate__(state)
    return result


def _depth(nodes: MixedArray) -> int:
    """Return the number of steps from the root to the deepest leaf."""
    level, depth = np.zeros(1, dtype=np.intp), -1
    while len(level):
        level, depth = level[nodes["left_child"][level] >= 0], depth + 1
        level = np.concatenate([nodes["left_child"][level], nodes["right_child"][level]])
    return depth
