"""The log losses of the members of a pool on held-out samples, and the gain of error bars: as a table and in words."""

import numpy as np

from gaussguru._utils.types import Estimator, Record


def has_pool(model: Estimator) -> bool:
    """Return whether a classifier is a pool."""
    return not getattr(model, "_is_linear", True)


def pool_table(scores: Record) -> dict[str, list[str]]:
    """Return the log losses on held-out samples as the columns of a table, of text.

    Parameters
    ----------
    scores : mapping
        ``cv_scores_`` of a pool, or the same columns as lists, with None for NaN.

    Returns
    -------
    dict from the name of a column to its cells
        "on held-out samples", "weight" and "log loss"; with error bars "weight, more noise" and "log loss, more noise".
    """
    # Rows of ``cv_scores_`` besides members, in the order of the table, and their names there.
    beside = {
        "pool": "the pool",
        "errors ignored": "boosting, errors ignored",
        "error sizes used": "boosting, error sizes used",
        "error sizes not used": "boosting, error sizes not used",
        "class frequencies": "class frequencies",
    }
    names = [str(name) for name in scores["member"]]
    places = [k for k, name in enumerate(names) if name not in beside]
    places += [names.index(name) for name in beside if name in names]
    columns = {"on held-out samples": [beside.get(names[k], names[k]) for k in places]}
    for name, title, digits in (
        ("weight", "weight", 2),
        ("log_loss", "log loss", 4),
        ("weight_noisier", "weight, more noise", 2),
        ("log_loss_noisier", "log loss, more noise", 4),
    ):
        if name in scores:
            values = [scores[name][k] for k in places]
            columns[title] = ["-" if v is None or np.isnan(v) else f"{v:.{digits}f}" for v in values]
    return columns


def pool_in_words(scores: Record, option: str = "use_error_sizes=True") -> list[str]:
    """Return sentences on the gain in log loss by error bars, and by their sizes as features.

    Parameters
    ----------
    scores : mapping
        As in :func:`pool_table`.
    option : str
        The option that makes sizes features, in the words of the caller.

    Returns
    -------
    list of str
    """
    rows = {str(name): k for k, name in enumerate(scores["member"])}
    kinds = [kind for kind in ("", "_noisier") if f"log_loss{kind}" in scores]

    def gain_of(one: str, other: str, than: str, row: str = "") -> str:
        """Return a clause: by how much the log loss of one row is below that of another, and standard errors."""
        gains = []
        for kind in kinds:
            gain = scores[f"log_loss{kind}"][rows[other]] - scores[f"log_loss{kind}"][rows[one]]
            error = scores[f"standard_error{kind}"][rows[row or other]]
            gains.append(f"{abs(gain):.3f} ± {error:.3f} {'higher' if gain < 0 else 'lower'}")
        first, *more = gains
        return f"{first} than {than}" + "".join(f", and with more noise {text}" for text in more)

    boosting = str(scores["member"][0])
    frequencies = gain_of("pool", "class frequencies", "that of the class frequencies")
    said = [f"The log loss of the pool is {frequencies} (± one standard error)."]
    if "errors ignored" in rows:
        ignored = gain_of("pool", "errors ignored", "that of boosting that ignores the errors")
        said.append(f"It is {ignored}: this is what error bars and the other members are worth here.")
    if "error sizes used" in rows:
        used = gain_of("error sizes used", boosting, "without", "error sizes used")
        said.append(
            f"With {option} the log loss of boosting would be {used}. Such a model may fail where samples are selected "
            "or measured in another way."
        )
    elif "error sizes not used" in rows:
        used = gain_of(boosting, "error sizes not used", "without them")
        said.append(
            f"The sizes of the errors are features here: the log loss of boosting is {used}. The model may fail where "
            "samples are selected or measured in another way."
        )
    if len(kinds) > 1:
        said.append("More noise: samples have the errors of other samples, times a random factor, if these are larger.")
    return said
