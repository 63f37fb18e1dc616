"""Trees of scikit-learn in model files: as plain arrays, of which new trees are made after these were checked.

Compiled code of scikit-learn follows the numbers of nodes and features in a tree without looking, and objects of it
are made with more attributes than predictions need. So neither is in a file. What a classifier has besides its nodes
comes from one of the same kind that is fitted to a few rows.
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

from gaussguru._estimators.pool import alone
from gaussguru._linalg import Array

# Numbers in the rows that a classifier is fitted to before it has its nodes.
MOST_NUMBERS = 10_000_000
# Of the value of a leaf, and of threads.
LARGEST, MOST_JOBS = 1e100, 1024

_FOREST = {"n_estimators": 1, "max_depth": 1}
# Kinds, and settings with which a fit to a few rows takes no time.
KINDS: dict[type, dict[str, Any]] = {
    DecisionTreeClassifier: {"max_depth": 1},
    ExtraTreesClassifier: _FOREST,
    HistGradientBoostingClassifier: {"max_iter": 1, "early_stopping": False, "min_samples_leaf": 1},
    RandomForestClassifier: _FOREST,
}
TREES = tuple(KINDS)


@dataclass
class Trees:
    """A classifier of trees: its parameters and, if it is fitted, its nodes one tree after the other.

    ``ends`` says where trees end; ``nodes`` has an array for each property of a node. Values are those of the nodes of
    a forest, (n_nodes, n_classes), or of boosting the scores that trees are added to, (1, n_scores).
    """

    kind: str
    parameters: dict[str, Any]
    names: list[str] | None = None
    n_features: int = 0
    classes: NDArray[Any] | None = None
    ends: NDArray[np.int64] | None = None
    nodes: dict[str, NDArray[Any]] | None = None
    values: Array | None = None


def replaced(thing: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return an object with some of its parts replaced: those of which a function returns another thing."""
    found = leaf(thing)
    if found is not thing:
        return found
    inner = vars(thing) if isinstance(thing, BaseEstimator) or is_dataclass(thing) else thing
    if type(inner) not in (dict, list, tuple):
        return thing
    parts = list(inner.values()) if isinstance(inner, dict) else list(inner)
    others = [replaced(part, leaf) for part in parts]
    if all(other is part for other, part in zip(others, parts, strict=True)):
        return thing
    if inner is thing and not isinstance(thing, dict):
        return type(thing)(others)
    contents = dict(zip(inner, others, strict=True))
    if inner is thing:
        return contents
    thing = copy.copy(thing)
    vars(thing).update(contents)
    return thing


def without_trees(thing: Any) -> Any:
    """Return a classifier of trees as arrays, and anything else as it is."""
    if type(thing) not in TREES:
        return thing
    kind, parameters = type(thing).__name__, thing.get_params(deep=False)
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"{name} of the {kind} is a {type(value).__name__}, which no model file holds there")
    result = Trees(kind, parameters)
    if not hasattr(thing, "classes_"):
        return result
    check_is_fitted(thing)
    if isinstance(thing, HistGradientBoostingClassifier):
        if thing._preprocessor is not None:
            raise ValueError(f"the {kind} has categorical features, which no model file holds")
        trees = [predictor.nodes for predictors in thing._predictors for predictor in predictors]
        result.values = thing._baseline_prediction
    else:
        if thing.n_outputs_ != 1:
            raise ValueError(f"the {kind} has several outputs, which no model file holds")
        states = [tree.tree_.__getstate__() for tree in getattr(thing, "estimators_", [thing])]
        trees = [state["nodes"] for state in states]
        result.values = np.concatenate([state["values"][:, 0] for state in states])
    result.names = [str(name) for name in getattr(thing, "feature_names_in_", [])] or None
    result.n_features, result.classes = int(thing.n_features_in_), thing.classes_
    result.ends = np.cumsum([len(nodes) for nodes in trees], dtype=np.int64)
    result.nodes = {name: np.concatenate([nodes[name] for nodes in trees]) for name in trees[0].dtype.names}
    return result


def with_trees(thing: Any) -> Any:
    """Return the classifier that arrays stand for, checked, and anything else as it is."""
    if type(thing) is not Trees:
        return thing
    kinds = {kind.__name__: kind for kind in TREES}
    if type(thing.kind) is not str or thing.kind not in kinds or type(thing.parameters) is not dict:
        raise ValueError("it has trees of no known kind")
    kind, parameters = kinds[thing.kind], thing.parameters
    if not set(parameters) <= set(kind().get_params()) or not all(
        isinstance(value, bool | int | float | str | None) for value in parameters.values()
    ):
        raise ValueError(f"its {thing.kind} has other parameters than those of a fit")
    jobs = parameters.get("n_jobs")
    if (
        not isinstance(jobs, int | None)
        or abs(jobs or 1) > MOST_JOBS
        or parameters.get("loss", "log_loss") != "log_loss"
    ):
        raise ValueError(f"its {thing.kind} has parameters that no fit has")
    if thing.nodes is None:
        return kind(**parameters)
    classes, n_features = _checked_sizes(thing)
    result = copy.copy(_small(kind, n_features, classes.dtype.str, tuple(classes.tolist())))
    booster = isinstance(result, HistGradientBoostingClassifier)
    first = result._predictors[0][0] if booster else getattr(result, "estimators_", [result])[0]
    nodes = _checked_nodes(thing, (first.nodes if booster else first.tree_.__getstate__()["nodes"]).dtype, n_features)
    assert thing.ends is not None  # it was checked
    parts = np.split(nodes, thing.ends[:-1])
    if booster:
        result.train_score_ = result.validation_score_ = np.zeros(0)  # those of the few rows
        shape, n_each = result._baseline_prediction.shape, result.n_trees_per_iteration_
        result._baseline_prediction = _checked_values(thing, shape)
        if len(parts) % n_each:
            raise ValueError(f"its {thing.kind} has no whole number of iterations")
        trees = [_boosting_tree(first, part) for part in parts]
        result._predictors = [trees[k : k + n_each] for k in range(0, len(trees), n_each)]
    else:
        values = _checked_values(thing, (len(nodes), len(classes)))
        if not (values >= 0).all() or not np.allclose(values.sum(axis=1), 1.0, rtol=1e-6):
            raise ValueError(f"values of its {thing.kind} are no probabilities")
        trees = [_tree(first, *pair) for pair in zip(parts, np.split(values, thing.ends[:-1]), strict=True)]
        if hasattr(result, "estimators_"):
            result.estimators_ = trees
        elif len(trees) == 1:
            result.tree_ = trees[0].tree_
        else:
            raise ValueError(f"its {thing.kind} has {len(trees)} trees")
    if thing.names is not None:
        result.feature_names_in_ = np.array(thing.names, dtype=object)
    return result.set_params(**parameters)


@lru_cache(maxsize=16)
def _small(kind: type, n_features: int, dtype: str, classes: tuple[Any, ...]) -> Any:
    """Return a classifier that is fitted to a few rows; a pool has many of the same kind."""
    X = np.random.default_rng(0).standard_normal((2 * len(classes), n_features))
    return alone(kind(**KINDS[kind], random_state=0).fit, X, np.repeat(np.array(classes, dtype=dtype), 2))


def _checked_sizes(thing: Trees) -> tuple[NDArray[Any], int]:
    """Return the classes and the number of features."""
    classes, n = thing.classes, thing.n_features
    if (
        type(classes) is not np.ndarray
        or classes.ndim != 1
        or len(classes) < 2
        or len(set(classes.tolist())) < len(classes)
    ):
        raise ValueError(f"its {thing.kind} has no classes")
    if type(n) is not int or not 1 <= n <= MOST_NUMBERS // (2 * len(classes)):
        raise ValueError(f"its {thing.kind} has too many features and classes, {n!r} and {len(classes)}")
    return classes, n


def _checked_values(thing: Trees, shape: tuple[int, ...]) -> Array:
    values = thing.values
    if type(values) is not np.ndarray or values.dtype != np.float64 or values.shape != shape:
        raise ValueError(f"values of its {thing.kind} have another shape than {shape}")
    if not (np.abs(values) <= LARGEST).all():
        raise ValueError(f"values of its {thing.kind} are no numbers of at most {LARGEST:g}")
    return values


def _checked_nodes(thing: Trees, dtype: Any, n_features: int) -> NDArray[Any]:
    """Return nodes in the form of the installed scikit-learn: children after their parents, features that exist."""
    nodes, ends = thing.nodes, thing.ends
    if type(nodes) is not dict or set(nodes) != set(dtype.names):
        raise ValueError(f"its {thing.kind} has nodes of another version of scikit-learn")
    if type(ends) is not np.ndarray or ends.dtype != np.int64 or ends.ndim != 1 or not len(ends):
        raise ValueError(f"ends of its {thing.kind} are no whole numbers")
    sizes = np.diff(ends, prepend=0)
    n = int(ends[-1])
    if not (sizes > 0).all() or any(type(part) is not np.ndarray or part.shape != (n,) for part in nodes.values()):
        raise ValueError(f"its {thing.kind} has other nodes than it says")
    result = np.zeros(n, dtype=dtype)
    for name in dtype.names:
        if nodes[name].dtype != dtype[name]:
            raise ValueError(f"{name} of its {thing.kind} is of another type")
        result[name] = nodes[name]
    boosting = "is_leaf" in dtype.names
    left, right, feature, threshold = (
        ("left", "right", "feature_idx", "num_threshold")
        if boosting
        else ("left_child", "right_child", "feature", "threshold")
    )
    inner = (result["is_leaf"] == 0) if boosting else (result[left] >= 0)
    place = np.arange(n) - np.repeat(ends - sizes, sizes)
    last = np.repeat(sizes, sizes)
    children = result[left].astype(np.int64), result[right].astype(np.int64)
    for child in children:
        if not (~inner | ((child > place) & (child < last))).all() or (not boosting and (child[~inner] != -1).any()):
            raise ValueError(f"its {thing.kind} has children that are no nodes after their parents")
    parents = np.bincount(np.concatenate([(child - place + np.arange(n))[inner] for child in children]), minlength=n)
    if not np.array_equal(parents, place > 0):
        raise ValueError(f"its {thing.kind} has nodes that are not one child of one parent")
    if not (~inner | ((result[feature] >= 0) & (result[feature] < n_features))).all():
        raise ValueError(f"its {thing.kind} has nodes of features that it does not have")
    if np.isnan(result[threshold][inner]).any():
        raise ValueError(f"its {thing.kind} has thresholds that are no numbers")
    if boosting and (result["is_categorical"].any() or not (np.abs(result["value"]) <= LARGEST).all()):
        raise ValueError(f"its {thing.kind} has categories, or values that are no numbers")
    return result


def _boosting_tree(like: Any, nodes: NDArray[Any]) -> Any:
    return type(like)(np.ascontiguousarray(nodes), like.binned_left_cat_bitsets[:0], like.raw_left_cat_bitsets[:0])


def _tree(like: Any, nodes: NDArray[Any], values: Array) -> Any:
    """Return a tree with other nodes."""
    result, state = copy.copy(like), like.tree_.__getstate__()
    kind, arguments, _ = like.tree_.__reduce__()
    result.tree_ = kind(*arguments)
    state |= {"node_count": len(nodes), "nodes": np.ascontiguousarray(nodes), "values": values[:, np.newaxis].copy()}
    state["max_depth"] = _depth(nodes)
    result.tree_.__setstate__(state)
    return result


def _depth(nodes: NDArray[Any]) -> int:
    """Return the number of steps from the root to the deepest leaf."""
    level, depth = np.zeros(1, dtype=np.intp), -1
    while len(level):
        level, depth = level[nodes["left_child"][level] >= 0], depth + 1
        level = np.concatenate([nodes["left_child"][level], nodes["right_child"][level]])
    return depth
