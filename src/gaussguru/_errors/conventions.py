"""Names by which archives call the columns of a table: errors, limits, correlations, flags, identifiers.

A rule is a pattern for the name of a column and a template for the name of the feature that it belongs to. A rule holds
only if the table has that feature. Names are compared without case, units in brackets and separators.
"""

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from gaussguru._errors.columns import Bar, Columns

# Factor from half the width of a 90 % interval to the standard deviation of a Gaussian.
NINETY_PERCENT = 1 / 1.6448536269514722
# Characters of a name that rules are tried on.
LONGEST_NAME = 200


class Rule(NamedTuple):
    """A pattern for columns of one role; ``feature`` is the template of the feature that they belong to."""

    pattern: str
    feature: str
    role: str


_ERROR = r"(?:err|error|unc|uncertainty|uncert|sigma|std|stddev|stdev|sd|se|sem|stderr|std_err|std_error|\u03c3)"
_DEVIATION = r"(?:s|_?(?:sd|se|sem|sigma|\u03c3))"

# Roles: sigma (standard deviations), twice (two of them), upper and lower (sides of an error), high and low (ends of
# an interval of 68 %), end+ and end- (ends of an interval of unknown level), margin (half of an interval of 90 %),
# variance, precision (1 / variance), limit- (-1 for an upper limit), limit+ (1 for an upper limit), limit< ("<" for
# an upper limit), correlation (of two features), flag (not a feature, whatever it holds), note (the same if it holds
# text or integers), maybe (doubtful errors, unless some are negative), spread (of readings whose mean is the feature:
# doubtful, too), identifier (of no feature, if other columns are of the convention).
CONVENTIONS: dict[str, tuple[Rule, ...]] = {
    "NASA Exoplanet Archive": (
        Rule(r"(.+?)_?err1", r"\1", "upper"),
        Rule(r"(.+?)_?err2", r"\1", "lower"),
        Rule(r"(.+?)lim", r"\1", "limit+"),
        Rule(r"(.+?)(?:symerr|_reflink|_refname|_solnid)|((?:pl|st|sy)_\w+?)(?:n|str)", r"\1\2", "flag"),
        Rule(
            r"disc_\w+|soltype|default_flag|pl_bmassprov|koi_tce_\w+|koi_disp_prov|koi_\w+_date"
            r"|(?:pl|st)_n(?:notes|transpec|espec|dispec|spec|phot|rvc)",  # numbers of notes, spectra, light curves
            "",
            "identifier",
        ),
    ),
    "VizieR": (
        Rule(r"E_(.+)", r"\1", "upper"),
        Rule(r"e_(.+)", r"\1", "lower"),
        Rule(r"l_(.+)", r"\1", "limit<"),
        Rule(r"[fnqurwmo]_(.+)", r"\1", "note"),
    ),
    "Gaia": (
        Rule(r"(.+)_error", r"\1", "sigma"),
        Rule(r"(.+)_over_error", r"\1", "flag"),
        Rule(r"(.+)_corr", r"\1", "correlation"),
        Rule(r"ref_epoch", "", "identifier"),
    ),
    "SDSS": (
        Rule(r"(.+?)err_(\w+)", r"\1_\2", "sigma"),
        Rule(r"(.+?)_?ivar_(\w+)", r"\1_\2", "precision"),
        Rule(r"(.+?)_?warning", r"\1", "flag"),
        Rule(r"run|rerun|camcol|field|obj|plate|mjd|fiber(?:id)?", "", "identifier"),
    ),
    "2MASS and WISE": (
        Rule(r"(w\d)sig(m\w*)", r"\1\2", "sigma"),
        Rule(r"([jhk])_msigcom", r"\1_m", "sigma"),
        Rule(r"([jhk]_m)sig(_2mass)", r"\1\2", "sigma"),
        Rule(r"([jhk])_cmsig", r"\1_m", "flag"),
        Rule(r"sig(?:ra|dec|radec)", "ra", "flag"),
        Rule(r"(w\d)(?:snr|rchi2|sat|flg|cc_map)", r"\1mpro", "flag"),
        Rule(r"(?:r|pa|n)_(?:2mass|allwise)", "", "identifier"),
    ),
    "Chandra": (
        Rule(r"(.+)_hilim(_[bsmhuw])?", r"\1\2", "high"),
        Rule(r"(.+)_lolim(_[bsmhuw])?", r"\1\2", "low"),
        Rule(r"err_ellipse_\w+|(?:conf|extent|multi_chip|pileup|sat_src|streak_src|var)_flag", "ra", "flag"),
    ),
    "Fermi": (Rule(r"conf_(?:68|95)_(?:semimajor|semiminor|posang)", "raj2000", "flag"),),
    "census": (
        Rule(r"m_(.+)", r"\1", "margin"),
        Rule(r"m(p?)_(.+)", r"e\1_\2", "margin"),
        Rule(r"(.+)_moe", r"\1", "margin"),
        Rule(r"([a-z]+\d+\w*_\d+p?)m", r"\1e", "margin"),
        Rule(r"([a-z]+\d+\w*_\d+p?)(?:ea|ma)", r"\1e", "flag"),
        Rule(r"margin_of_error(!!.+)", r"estimate\1", "margin"),
        # Flags of the CDC's index of vulnerability, of shares that it ranks.
        *(Rule(r"f_(.+)", shares, "flag") for shares in (r"epl_\1", r"ep_\1")),
        Rule(r"f_(theme\d+)", r"spl_\1", "flag"),
        Rule(r"f_total", r"spl_themes", "flag"),
        Rule(r"us|region|division|state|county|county_subdivision|place|tract|block_group|st|stcnty", "", "identifier"),
    ),
    "errors by name": (
        *(
            Rule(r"(.+?)_(?:sd|std|stdev|stddev|std_dev)|(?:sd|std|stdev|stddev|std_dev)_(.+)", mean, "spread")
            for mean in (r"\1\2_mean", r"mean_\1\2", r"\1\2_avg")
        ),
        Rule(rf"(.+?)_{_ERROR}", r"\1", "sigma"),
        Rule(rf"(.+?)_±?1{_DEVIATION}", r"\1", "sigma"),
        Rule(rf"(.+?)_±?2{_DEVIATION}", r"\1", "twice"),
        Rule(r"(.+?)(?:err|error)", r"\1", "sigma"),
        Rule(rf"{_ERROR}_(.+)", r"\1", "sigma"),
        Rule(r"(.+?)_?(?:±|\+_)|±_?(.+)", r"\1\2", "sigma"),
        Rule(rf"(.+?)_?{_ERROR}(?:1|_?hi|_?high|_?up|_?upper|_?plus|_?pos|_?p)", r"\1", "upper"),
        Rule(rf"(.+?)_?{_ERROR}(?:2|_?lo|_?low|_?lower|_?minus|_?neg|_?m)", r"\1", "lower"),
        Rule(rf"(.+?)_(?:up|hi|upper|plus|pos)_?{_ERROR}", r"\1", "upper"),
        Rule(rf"(.+?)_(?:lo|low|lower|minus|neg|down)_?{_ERROR}", r"\1", "lower"),
        Rule(r"(.+?)_(?:plus|pos)", r"\1", "upper"),
        Rule(r"(.+?)_(?:minus|neg)", r"\1", "lower"),
        Rule(r"(.+?)_(?:p|q)?84", r"\1", "high"),
        Rule(r"(.+?)_(?:p|q)?16", r"\1", "low"),
        Rule(r"(.+?)_(?:upper|hi|high|ub|ci_(?:upper|high|hi))", r"\1", "end+"),
        Rule(r"(.+?)_(?:lower|lo|low|lb|ci_(?:lower|low|lo))", r"\1", "end-"),
        Rule(r"(.+?)_var(?:iance)?", r"\1", "variance"),
        Rule(r"(.+?)_ivar", r"\1", "precision"),
        Rule(r"(.+?)_limit", r"\1", "limit-"),
        Rule(r"(.+?)_(?:uplim|ulim|upper_limit|is_upper_limit)", r"\1", "limit+"),
        Rule(r"(.+?)_(?:flag|flags|quality|qual|ref|reference|note|notes|unit|units)", r"\1", "note"),
        Rule(r"(?:delta|[dδ∆])_?(.+)", r"\1", "maybe"),
    ),
}
# One search that tells most names that no rule is for: rules need one of these.
_HINT = re.compile(
    r"err|unc|sig|std|sd$|se$|sem$|±|\+|lim$|corr$|var|moe$|margin|plus$|pos$|minus$|neg$|upper$|lower$|hi(?:gh)?$|lo(?:w)?$"
    r"|[ul]b$|16$|84$|^conf_|flag|flg$|qual|ref|note|unit|snr$|chi2$|sat$|map$|warning$|solnid$|^(?:pl|st|sy)_\w+(?:n|str)$|^[a-z]_|^sd_|^se_"
    r"|^[a-z]+\d+\w*_\d+p?[em]?[am]$|(?:hi|lo)lim|^[dδ∆]|\u03c3|^mp_|[12]s$"
)
# Statistics of a column, whose name in brackets is no unit.
FUNCTION = re.compile(rf"(?i)^\s*(mean|avg|{_ERROR})\(([^()]+)\)\s*$")
_DOUBTFUL = {
    "maybe": "may hold the errors of {!r}",
    "spread": "looks like the spread of the readings with the mean {!r}, not the error of this mean, which is "
    "smaller by the square root of their number: divide by it first, if so (--err-pattern takes it as it stands)",
}

# Names that are those of identifiers, and those that are if the column has as many different entries as rows.
_IDENTIFIER = re.compile(
    r"id|ids|row_?id|row_?num(?:ber)?|rec_?no|record_?id|uuid|[\w]*_id|[a-z]*obj_?id|kepid|kepoi(?:_?name)?|tic_?id"
    r"|tid|toi|toi_?(?:pfx|display|created)|ctoi(?:_alias)?|designation|solution_?id|random_?index|htm_?id|healpix\w*"
    r"|(?:target|object|source|src|patient|subject|sample|star|spec|photo)_?(?:id|no|nr|num|number)|geo_?id|fips|zip_?code|unnamed:?_?\d*|row_?update|release_?date|2mass|source_?name"
)
_MAYBE_IDENTIFIER = re.compile(
    r"index|idx|row|record|seq|key|epic|hip|hd|tyc\d?|no|nr|num|number|plate|fiber|mjd|run|rerun|camcol|field|code"
    r"|.*_?name|.*_?identifier|.*_(?:no|nr|num|number|code|key)|name"
)
# Pairs of coordinates on the sky; l and b beside others only.
_POSITIONS = [
    (re.compile(one), re.compile(other))
    for one, other in (
        (
            r"_?ra(?:j2000|j|_?deg|_?icrs|_?str|_?j2000|_?epoch2000|hms)?|right_ascension|rajd",
            r"_?de?c?(?:j2000|j|_?deg|_?icrs|_?str|_?j2000|_?epoch2000|dms)|_?(?:de|decl?)|declination|decjd",
        ),
        (r"_?(?:g(?:al)?_?lon|gal_?l2?)", r"_?(?:g(?:al)?_?lat|gal_?b2?)"),
        (r"_?e(?:cl)?_?lon", r"_?e(?:cl)?_?lat"),
        (r"l(?:ii)?", r"b(?:ii)?"),
    )
]
_LOOKS = {
    "errors": re.compile(
        rf"(?:.*_)?{_ERROR}(?:\d|_.*)?|.+(?:err|error)(?:\d|_.*)?|.+_ivar(?:_.*)?|e_.+|.*_moe|.*±.*"
        rf"|(?:[bc]|dp|s)\d{{2,}}\w*_\d{{3,}}p?m|(?:.*_)?[12]{_DEVIATION}"
    ),
    "a limit flag": re.compile(r".+_(?:lim|limit)(?:_?flag)?|l_.+|.*_u(?:p)?lim|.+(?:hi|lo)lim"),
    "a correlation": re.compile(r".+_corr|corr_.+"),
    "a flag": re.compile(r"(?:.*_)?(?:flag|flags|flg|quality|qual)(?:_.*)?"),
}


@dataclass(frozen=True)
class ColumnRoles:
    """Roles of columns by their names.

    ``errors`` has the errors of features; ``limits`` their limit flags, as column and coding ("-", "+" or "<", the mark
    of an upper limit); ``correlations`` two features and the column; ``ignored`` and ``doubtful`` the reasons why a
    column is not a feature, or might not be one; ``settled_by`` the options that settle doubts, of those that --drop is
    not for; ``used`` the conventions by column.
    """

    errors: dict[str, Bar] = field(default_factory=dict)
    limits: dict[str, tuple[str, str]] = field(default_factory=dict)
    correlations: list[tuple[str, str, str]] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)
    settled_by: dict[str, str] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)

    @property
    def not_values(self) -> set[str]:
        """Columns that hold no values of features."""
        errors = {column for bar in self.errors.values() for column in bar.columns}
        limits = {column for column, _ in self.limits.values()}
        return errors | limits | {column for *_, column in self.correlations} | {*self.ignored}

    def columns(self, names: Iterable[str]) -> Columns:
        """Return the features among some columns, with their errors, limits and correlations."""
        values = [name for name in names if name not in self.not_values]
        errors = {name: self.errors[name] for name in values if name in self.errors}
        limits = {name: self.limits[name] for name in values if name in self.limits}
        known = [] if limits else [pair for pair in self.correlations if {*pair[:2]} <= errors.keys()]
        return Columns(values, errors, limits, known)


@lru_cache(maxsize=1 << 16)
def plain(name: str) -> str:
    """Return a name in lower case, without a unit in brackets at its end, with underscores between words.

    Mean(x) is mean_x.
    """
    name = FUNCTION.sub(r"\1_\2", name)
    bare = re.sub(r"\s*(?:\[[^\]]*\]|\([^)]*\))\s*$", "", name.strip()) if name[-1:] in "])" else name.strip()
    return re.sub(r"[\s.\-/:]+", "_", (bare or name).lower())


class _Names:
    """Columns of a table, by their names as written and by plain names."""

    def __init__(self, columns: Iterable[str]) -> None:
        self.columns = list(columns)
        self.plain = {column: plain(column[:LONGEST_NAME]) for column in self.columns}
        self.by_plain: dict[str, list[str]] = {}
        for column, name in self.plain.items():
            self.by_plain.setdefault(name, []).append(column)

    def feature(self, name: str, column: str, *, spelt: bool) -> str | None:
        """Return the column of a feature, as written or else by its plain name; None where there is none or several."""
        if name in self.plain and name != column:
            return name
        # Values beside which errors of all kinds, or those of a mean only, have the shorter name.
        aliases = ["{}", "{}_value", "{}_val", "{}_estimate"]
        if spelt or re.fullmatch(r".*(?:se|sem|err|error|moe|unc)", self.plain[column]):
            aliases += ["{}_mean", "mean_{}", "{}_avg"]
        for alias in aliases:
            others = [other for other in self.by_plain.get(alias.format(plain(name)), []) if other != column]
            if others:
                return others[0] if len(others) == 1 else None
        return None

    def pair(self, name: str) -> str | None:
        """Return two features, with a null character between them, whose names make this one with an underscore."""
        words = name.split("_")
        for cut in range(1, len(words)):
            parts = [self.by_plain.get("_".join(half), []) for half in (words[:cut], words[cut:])]
            if all(len(part) == 1 for part in parts):
                return f"{parts[0][0]}\0{parts[1][0]}"
        return None


def pattern_rule(pattern: str) -> Rule:
    """Return the rule of a pattern with "{x}" for the name of the feature, such as "{x}_fehler"."""
    if pattern.count("{x}") != 1 or pattern == "{x}":
        raise ValueError(
            f"a pattern of error columns must contain {{x}} once, and more, such as '{{x}}_err'; got {pattern!r}"
        )
    before, after = map(re.escape, pattern.split("{x}"))
    return Rule(f"{before}(.+){after}", r"\1", "sigma")


def _rules(convention: str, patterns: Iterable[str]) -> list[tuple[re.Pattern[str], Rule, str]]:
    """Return rules with the names of their conventions, those of given patterns first."""
    if convention == "auto":
        rules = [(rule, source) for source, group in CONVENTIONS.items() for rule in group if rule.feature]
    elif convention in CONVENTIONS:
        rules = [(rule, convention) for rule in CONVENTIONS[convention] if rule.feature]
    elif isinstance(convention, str) and "{x}" in convention:
        patterns, rules = [*patterns, convention], []
    else:
        raise ValueError(
            f"convention must be 'auto', one of {list(CONVENTIONS)!r}, or a pattern such as '{{x}}_err'; "
            f"got {convention!r}"
        )
    given = [(pattern_rule(pattern), pattern) for pattern in patterns]
    return [(re.compile(rule.pattern), rule, source) for rule, source in [*given, *rules]]


def column_roles(
    columns: Iterable[str],
    *,
    convention: str = "auto",
    patterns: Iterable[str] = (),
    values: Iterable[str] = (),
    dropped: Iterable[str] = (),
    kind: Callable[[str], str | None] = lambda _: None,
    level: bool = False,
) -> ColumnRoles:
    """Find the roles of columns by their names.

    Parameters
    ----------
    columns : iterable of str
        Names of all columns, without label, weight and group.
    convention : str, default="auto"
        "auto" for all conventions, one of ``CONVENTIONS``, or a pattern such as "{x}_err" for the names of errors.
    patterns : iterable of str
        Further patterns for the names of errors, which count first.
    values : iterable of str
        Columns that are values, whatever their names.
    dropped : iterable of str
        Columns to ignore, with their errors.
    kind : callable, optional
        Returns "text", "integer", "number", "signed" (numbers, some of them negative), "unique" (texts or integers, as
        many as rows) or None for a column.
    level : bool, default=False
        Whether the level of intervals is known.

    Returns
    -------
    ColumnRoles
    """
    names, dropped = _Names(columns), list(dropped)
    fixed = {*values, *dropped}
    roles = ColumnRoles(ignored=dict.fromkeys(dropped, "--drop"))
    sides: dict[str, dict[str, tuple[str, str]]] = {}
    sources = {"SDSS"} if names.by_plain.keys() & {"objid", "specobjid"} else set[str]()
    for column, (feature, role, source) in _matches(names, _rules(convention, patterns), fixed, kind).items():
        of = sides.setdefault(feature, {})
        if not feature:
            roles.doubtful[column] = f"looks like errors{_of(column)}"
        elif role == "correlation":
            one, other = feature.split("\0")
            roles.correlations.append((one, other, column))
        elif role in ("flag", "note"):
            sources |= {source} if role == "flag" else set()
            roles.ignored[column] = f"flag or note of {feature!r}"
        elif role in _DOUBTFUL:
            roles.doubtful[column] = _DOUBTFUL[role].format(feature)
            roles.settled_by[column] = f"--err-pattern {shlex.quote(source)}"
        elif role in of:
            roles.doubtful[column] = f"is beside {of[role][0]!r}: column {feature!r} has two kinds of errors"
        else:
            of[role] = column, source
            roles.used[column] = source
    for feature, of in sides.items():
        _resolve(roles, feature, of, level)
    sources |= {*roles.used.values()}
    if convention == "auto":
        _add_ignored(names, fixed, kind, roles, sources)
    _drop_unused(roles)
    if convention == "auto":
        _add_doubtful(names, fixed, roles, sources)
    return roles


def _add_doubtful(names: _Names, fixed: set[str], roles: ColumnRoles, sources: set[str]) -> None:
    """Add columns whose names look like errors, limit flags, correlations or flags of no feature."""
    taken = roles.not_values | fixed | {*roles.errors, *roles.limits}
    for column in names.columns:
        name = names.plain[column]
        if column in taken or not (_HINT.search(name) or "corr" in name):
            continue
        looks = next((look for look, pattern in _LOOKS.items() if pattern.fullmatch(name)), None)
        looks = looks or ("a flag" if "VizieR" in sources and re.fullmatch(r"[fq]_.+", name) else None)
        if looks:
            roles.doubtful.setdefault(column, f"looks like {looks}{_of(column)}")


def named_as_errors(columns: Iterable[str]) -> list[str]:
    """Return the columns that are named as the errors of others."""
    roles = column_roles(columns)
    errors = {column for bar in roles.errors.values() for column in bar.columns}
    return sorted(errors | {column for column in roles.used if "err" in column.lower()})


def _of(column: str) -> str:
    """Return the feature that a column of errors would belong to, in words."""
    name = re.sub(rf"(?i)_?{_ERROR}[12]?$|^(?:e|l|{_ERROR})_|_?(?:lim|limit|moe|ivar|corr|flag|flags)$", "", column)
    return f" of a column {name!r}, which is no feature" if name and name != column else " of another column"


def _matches(
    names: _Names, rules: list[tuple[re.Pattern[str], Rule, str]], fixed: set[str], kind: Callable[[str], str | None]
) -> dict[str, tuple[str, str, str]]:
    """Return feature, role and convention of every column that a rule holds for; the first rule counts.

    Doubtful errors have the pattern of their names in place of the convention.
    """
    given = [rule for rule in rules if rule[2] not in CONVENTIONS]
    found: dict[str, tuple[str, str, str]] = {}
    for column in names.columns:
        name = names.plain[column]
        if column in fixed or len(column) > LONGEST_NAME:
            continue
        for pattern, rule, source in rules if _HINT.search(name) else given:
            # VizieR tells e_x and E_x apart.
            match = pattern.fullmatch(column) or (pattern.fullmatch(name) if source != "VizieR" else None)
            # A note holds text or integers, and errors are no texts and never negative.
            values = {"note": ("number", "signed"), "maybe": ("signed", "text")}.get(rule.role, ())
            if match is None or kind(column) in values:
                continue
            other = match.expand(rule.feature)
            if rule.role == "correlation":
                feature = names.pair(plain(other))
            else:
                feature = names.feature(other, column, spelt=source not in CONVENTIONS)
            if feature is not None:
                found[column] = feature, rule.role, _pattern(column, match) if rule.role in _DOUBTFUL else source
                break
            if source not in CONVENTIONS and not source.replace("{x}", "").isalpha():  # "d{x}" is not for "distance"
                found[column] = "", rule.role, source
    # Errors of errors, and errors of flags, are none.
    return {column: match for column, match in found.items() if match[0] not in found}


def _pattern(column: str, match: re.Match[str]) -> str:
    """Return the name of a column with "{x}" in place of the name of its feature."""
    lower, name = column.lower(), next(filter(None, match.groups()), "").lower()
    place = lower.find(name) if match.string.lower().startswith(name) else lower.rfind(name)
    return f"{column[:place]}{{x}}{column[place + len(name) :]}"


def _resolve(roles: ColumnRoles, feature: str, of: dict[str, tuple[str, str]], level: bool) -> None:
    """Add error, limit flag and doubts of a feature to roles, from the columns of each role."""
    # Kinds of errors, with factors on the numbers.
    kinds = {
        "margin": ("sigma", NINETY_PERCENT), "sigma": ("sigma", 1.0), "twice": ("sigma", 0.5),
        "variance": ("variance", 1.0), "precision": ("precision", 1.0),
    }  # fmt: skip
    pairs = {"upper": "lower", "lower": "upper", "high": "low", "low": "high", "end+": "end-", "end-": "end+"}
    bars: dict[str, Bar] = {}
    for role, (column, source) in of.items():
        if role in kinds:
            form, factor = kinds[role]
            bars[role] = Bar(form, [column], factor)
        elif role.startswith("limit"):
            roles.limits[feature] = column, role[-1]
        elif pairs[role] in of:
            kind = "sides" if role in ("upper", "lower") else "bounds"
            upper = next(side for side in ("upper", "high", "end+") if side in (role, pairs[role]))
            if upper == "end+" and not level:
                roles.doubtful[column] = (
                    f"looks like an end of an interval of {feature!r}, of a level that must be given: 0.6827 for one "
                    "standard deviation to either side, 0.9, 0.95 or 0.9545 as the table's source says"
                )
                roles.settled_by[column] = "--error-level LEVEL"
                continue
            bars[kind] = Bar(kind, [of[upper][0], of[pairs[upper]][0]])
        elif source == "VizieR":
            bars["sigma"] = Bar("sigma", [column])
        else:
            roles.doubtful[column] = f"looks like one side of the errors of {feature!r}, and the other is not there"
    for bar in [*bars.values()][1:]:
        first = next(iter(bars.values())).columns[0]
        reason = f"is beside {first!r}: column {feature!r} has two kinds of errors"
        roles.doubtful.update(dict.fromkeys(bar.columns, reason))
    if bars:
        roles.errors[feature] = next(iter(bars.values()))


def _add_ignored(
    names: _Names, fixed: set[str], kind: Callable[[str], str | None], roles: ColumnRoles, sources: set[str]
) -> None:
    """Add identifiers and positions, by their names; ``sources`` are the conventions of the table."""
    taken = fixed | roles.not_values
    columns = [column for column in names.columns if column not in taken]
    for pair in _POSITIONS:
        found = [[name for name in columns if pattern.fullmatch(names.plain[name])] for pattern in pair]
        if all(found) and (pair is not _POSITIONS[-1] or "position" in roles.ignored.values()):
            roles.ignored.update(dict.fromkeys([*found[0], *found[1]], "position"))
    rules = [rule.pattern for source in sources for rule in CONVENTIONS.get(source, ()) if not rule.feature]
    sure = re.compile("|".join([_IDENTIFIER.pattern, *rules]))
    for column in columns:
        name = names.plain[column]
        if re.fullmatch(r"koi_(?:pdisposition|score|fpflag_\w+)", name):  # its dispositions follow
            roles.ignored[column] = "result of vetting, which may tell the label"
        is_unique = _MAYBE_IDENTIFIER.fullmatch(name) and kind(column) == "unique"
        if column not in roles.errors and (sure.fullmatch(name) or is_unique):
            roles.ignored.setdefault(column, "identifier")


def _drop_unused(roles: ColumnRoles) -> None:
    """Ignore errors, limits and correlations of features that are ignored or have no errors."""
    for feature in [name for name in roles.errors if name in roles.ignored]:
        bar = roles.errors.pop(feature)
        roles.ignored.update(dict.fromkeys(bar.columns, f"errors of {feature!r}, which is not used"))
    for feature in [name for name in roles.limits if name in roles.ignored]:
        roles.ignored[roles.limits.pop(feature)[0]] = f"limits of {feature!r}, which is not used"
    for correlation in [*roles.correlations]:
        if not all(name in roles.errors for name in correlation[:2]):
            roles.correlations.remove(correlation)
            roles.ignored[correlation[2]] = "correlation of columns that are not used, or have no errors"
