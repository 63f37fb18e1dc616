"""Plans of tables as archives write them, with their headers and invented values: the role of every column."""

import gzip
import io
import json
import re
import shlex
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pytest
from sklearn.model_selection import GridSearchCV, GroupShuffleSplit, StratifiedGroupKFold, train_test_split

from gaussguru import ErrorBarClassifier, GuruClassifier, GuruClassifierCV, KernelGuruClassifier
from gaussguru._errors.columns import Bar
from gaussguru._errors.conventions import NINETY_PERCENT, column_roles
from gaussguru._tables import base, streaming
from gaussguru._tables.files import FileLimits, TableError, open_table
from gaussguru._tables.fitting import split_rows
from gaussguru._tables.options import Options
from gaussguru._tables.plan import Plan
from gaussguru._tables.schema import read_all
from gaussguru.cli import main
from gaussguru.cli.console import show_table
from gaussguru.models import read_model

N = 60
KIND = np.where(np.arange(N) % 2, "yes", "no")
EVEN = np.arange(N) % 2


def numbers(seed, scale=1.0, shift=0.0):
    return shift + scale * (np.random.default_rng(seed).standard_normal(N) + EVEN)


def errors(seed, scale=0.1):
    return scale * np.random.default_rng(seed).uniform(0.5, 1.5, N)


def many_digits(seed, low=10**17, high=9 * 10**17):
    return np.random.default_rng(seed).integers(low, high, N)


def exoplanets():
    columns = {"rowid": np.arange(N) + 1, "toi": np.arange(N) + 100.01, "tid": many_digits(0, 10**7, 10**9)}
    columns |= {"ra": numbers(1, 50, 180), "dec": numbers(2, 20), "toi_created": "2026-01-01", "tfopwg_disp": KIND}
    for seed, name in enumerate(("pl_orbper", "pl_rade", "st_teff")):
        columns |= {name: numbers(seed, 1, 9), f"{name}err1": errors(seed), f"{name}err2": -2 * errors(seed)}
        columns |= {f"{name}lim": (np.arange(N) == 5).astype(int), f"{name}symerr": 1}
    return pd.DataFrame(columns)


def vizier():
    columns = {"recno": np.arange(N) + 1, "Name": [f"star {i}" for i in range(N)], "RAJ2000": numbers(1, 50)}
    columns |= {"DEJ2000": numbers(2), "Teff": numbers(3, 100, 5000), "e_Teff": errors(3, 60), "E_Teff": errors(4, 90)}
    columns |= {"logg": numbers(5), "e_logg": errors(5), "l_[Fe/H]": np.where(EVEN, "<", None), "[Fe/H]": numbers(6)}
    return pd.DataFrame(columns | {"e_[Fe/H]": errors(6), "n_logg": np.where(EVEN, "a", "b"), "Class": KIND})


def gaia():
    columns = {"solution_id": 1, "designation": [f"Gaia {i}" for i in range(N)], "source_id": many_digits(0)}
    columns |= {"ra": numbers(1, 50), "ra_error": errors(1), "dec": numbers(2), "dec_error": errors(2)}
    for seed, name in enumerate(("parallax", "pmra", "pmdec"), 3):
        columns |= {name: numbers(seed), f"{name}_error": errors(seed)}
    columns |= {"parallax_over_error": numbers(3, 10), "ra_dec_corr": 0.1, "parallax_pmra_corr": 0.5}
    return pd.DataFrame(columns | {"pmra_pmdec_corr": -0.3, "phot_g_mean_mag": numbers(7, 1, 15), "kind": KIND})


def sloan():
    columns = {"objID": many_digits(0), "run": 756, "ra": numbers(1, 50), "dec": numbers(2)}
    for seed, band in enumerate("ugr", 3):
        columns |= {f"psfMag_{band}": numbers(seed, 1, 19), f"psfMagErr_{band}": errors(seed), band: numbers(seed)}
        columns |= {f"err_{band}": errors(seed)}
    return pd.DataFrame(columns | {"class": KIND})


def wise():
    columns = {"designation": [f"J{i}" for i in range(N)], "w1mpro": numbers(1, 1, 12), "w1sigmpro": errors(1)}
    columns |= {"w1snr": numbers(2, 5, 50), "j_m": numbers(3, 1, 13), "j_msigcom": errors(3), "type": KIND}
    return pd.DataFrame(columns)


def chandra():
    flux = np.abs(numbers(1)) + 1
    columns = {"flux_aper_b": flux, "flux_aper_b_hilim": flux + errors(1), "flux_aper_b_lolim": flux - errors(2)}
    return pd.DataFrame({"name": [f"2CXO {i}" for i in range(N)], **columns, "type": KIND})


def census():
    columns = {"GEO_ID": [f"0500000US{i}" for i in range(N)], "B19013_001E": numbers(1, 900, 50_000)}
    columns |= {"B19013_001M": errors(1, 1645), "income": numbers(2, 10, 100), "M_income": errors(2, 16)}
    return pd.DataFrame(columns | {"age": numbers(3, 1, 40), "age_moe": errors(3), "outcome": KIND})


def clinic():
    columns = {"Glucose (mg/dL)": numbers(1, 10, 90), "Glucose SD": errors(1, 5), "Sodium": numbers(2, 1, 140)}
    columns |= {"Sodium ±": errors(2), "Sex": np.where(np.arange(N) % 3, "f", "m"), "Smoker": np.arange(N) % 5 == 0}
    return pd.DataFrame(columns | {"Diagnosis": KIND})


def spectra():
    columns = {"TARGETID": many_digits(0), "flux_g": numbers(1), "flux_ivar_g": 1 / errors(1) ** 2, "z": numbers(2)}
    columns |= {"z_var": errors(2) ** 2, "q": numbers(3), "q_16": numbers(3) - 0.2, "q_84": numbers(3) + 0.3}
    return pd.DataFrame(columns | {"SPECTYPE": KIND})


def fermi():
    columns = {"Source_Name": [f"4FGL {i}" for i in range(N)], "Flux1000": numbers(1), "Unc_Flux1000": errors(1)}
    columns |= {"LP_Index": numbers(2), "Unc_LP_Index": errors(2), "Signif_Avg": numbers(3)}
    return pd.DataFrame(columns | {"CLASS1": KIND})


SIDES, ONE = "sides", "sigma"
# Tables: target, kinds of the errors of all values, and ignored columns.
ARCHIVES = {
    "exoplanets": (exoplanets, "tfopwg_disp", {"pl_orbper": SIDES, "pl_rade": SIDES, "st_teff": SIDES},
                   "rowid toi tid ra dec toi_created pl_orbpersymerr pl_radesymerr st_teffsymerr"),
    "vizier": (vizier, "Class", {"Teff": SIDES, "logg": ONE, "[Fe/H]": ONE}, "recno Name RAJ2000 DEJ2000 n_logg"),
    "gaia": (gaia, "kind", {"parallax": ONE, "pmra": ONE, "pmdec": ONE, "phot_g_mean_mag": None},
             "solution_id designation source_id ra ra_error dec dec_error parallax_over_error ra_dec_corr"),
    "sloan": (sloan, "class", {f"{kind}{band}": ONE for band in "ugr" for kind in ("psfMag_", "")},
              "objID ra dec"),
    "wise": (wise, "type", {"w1mpro": ONE, "j_m": ONE}, "designation w1snr"),
    "chandra": (chandra, "type", {"flux_aper_b": "bounds"}, "name"),
    "census": (census, "outcome", {"B19013_001E": ONE, "income": ONE, "age": ONE}, "GEO_ID"),
    "clinic": (clinic, "Diagnosis", {"Glucose (mg/dL)": ONE, "Sodium": ONE, "Smoker": None}, ""),
    "spectra": (spectra, "SPECTYPE", {"flux_g": "precision", "z": "variance", "q": "bounds"}, "TARGETID"),
    "fermi": (fermi, "CLASS1", {"Flux1000": ONE, "LP_Index": ONE, "Signif_Avg": None}, "Source_Name"),
}  # fmt: skip


def plan_of(path, target, **options):
    table = open_table(str(path))
    try:
        return Plan.of(table, target, Options(**options))
    finally:
        table.close()


def planned(frame, tmp_path, target="y", **options):
    frame.to_csv(tmp_path / "t.csv", index=False)
    return plan_of(tmp_path / "t.csv", target, **options)


def read(path, target, **options):
    table = open_table(str(path))
    try:
        return read_all(table, Plan.of(table, target, Options(**options)).check(), learning=True)
    finally:
        table.close()


@pytest.mark.parametrize("name", ARCHIVES)
def test_columns_of_archives_have_the_roles_that_archives_give_them(tmp_path, name):
    make, target, bars, ignored = ARCHIVES[name]
    dropped = ["run"] if name == "sloan" else []
    plan = planned(make(), tmp_path, target, drop=dropped)
    layout = plan.check()
    assert {value: layout.errors[value].kind if value in layout.errors else None for value in layout.values} == bars
    unused = {column.name for column in plan.columns if column.role in ("identifier", "position", "flag", "ignored")}
    assert unused == {*ignored.split(), *dropped}
    data = read(tmp_path / "t.csv", target, drop=dropped)
    assert data.X.shape == (N, len(layout.features))
    assert np.isfinite(data.X.to_numpy()).all()


def test_numbers_of_archives_are_standard_deviations(tmp_path):
    frame = exoplanets()
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = read(tmp_path / "t.csv", "tfopwg_disp")
    np.testing.assert_array_equal(data.X_err.sides, np.where(np.arange(N) == 5, -1, 0)[:, np.newaxis].repeat(3, 1))
    frame = vizier()
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert read(tmp_path / "t.csv", "Class").X_err.sides[:, 2].tolist() == (-EVEN).tolist()
    frame = gaia()
    frame.to_csv(tmp_path / "t.csv", index=False)
    covariances = read(tmp_path / "t.csv", "kind").X_err
    e = [frame[f"{name}_error"] for name in ("parallax", "pmra", "pmdec")]
    np.testing.assert_allclose(covariances[:, 0, 1], 0.5 * e[0] * e[1])
    np.testing.assert_allclose(covariances[:, 1, 2], -0.3 * e[1] * e[2])
    assert not covariances[:, 0, 2].any()
    assert not covariances[:, 3].any()
    frame = census()
    frame.to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_allclose(read(tmp_path / "t.csv", "outcome").X_err[:, 1], frame["M_income"] / 1.6448536)
    assert "'B19013_001E', 'income', 'age' are 90 % intervals" in " ".join(plan_of(tmp_path / "t.csv", "outcome").notes)
    frame = spectra()
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = read(tmp_path / "t.csv", "SPECTYPE")
    np.testing.assert_allclose(data.X_err[:, :2], np.column_stack([errors(1), errors(2)]))
    np.testing.assert_allclose(data.X["q"], numbers(3) + np.sqrt(2 / np.pi) * 0.1)


@pytest.mark.parametrize(
    ("values", "of_errors", "kind"),
    [
        ("flux_aper_s", "flux_aper_hilim_s flux_aper_lolim_s", "bounds"),
        ("j_m_2mass", "j_msig_2mass", "sigma"),
        ("DP03_0128PE", "DP03_0128PM", "sigma"),
        ("S1701_C03_046E", "S1701_C03_046M", "sigma"),
    ],
)
def test_archives_put_the_mark_of_errors_into_names(values, of_errors, kind):
    factor = NINETY_PERCENT if values[0] in "DS" else 1.0
    assert column_roles(["a", values, *of_errors.split()]).errors == {values: Bar(kind, of_errors.split(), factor)}


@pytest.mark.parametrize(
    ("columns", "errors"),
    [
        ("87Sr/86Sr|87Sr/86Sr 2SE|Age (Ma)|Age 2\u03c3 (Ma)", [("87Sr/86Sr", 0.5), ("Age (Ma)", 0.5)]),
        ("U (ppm)|U 2s|Th|Th ±2 sd", [("U (ppm)", 0.5), ("Th", 0.5)]),
        ("age|age_1s|d18O|d18O 1\u03c3|Hf|Hf \u03c3", [("age", 1.0), ("d18O", 1.0), ("Hf", 1.0)]),
    ],
)
def test_laboratories_say_in_names_how_many_standard_deviations_errors_are(columns, errors):
    names = columns.split("|")
    expected = {
        value: Bar("sigma", [error], factor) for (value, factor), error in zip(errors, names[1::2], strict=True)
    }
    assert column_roles(names).errors == expected
    assert {*column_roles([*names[::2], "ratio 2SE", "x_2s"]).doubtful} == {"ratio 2SE", "x_2s"}


def test_two_standard_deviations_are_halved_and_said(tmp_path):
    frame = pd.DataFrame({"a": numbers(0), "a 2SE": errors(0), "b": numbers(1), "b_err": errors(1), "y": KIND})
    frame.to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_allclose(read(tmp_path / "t.csv", "y").X_err[:, 0], frame["a 2SE"] / 2)
    scaled = read(tmp_path / "t.csv", "y", error_factor=0.1).X_err  # of errors whose names do not say their level
    np.testing.assert_allclose(scaled, np.column_stack([frame["a 2SE"] / 2, 0.1 * frame["b_err"]]))
    notes = plan_of(tmp_path / "t.csv", "y").notes
    assert notes == ["errors of 'a' are two standard deviations, by their names: divided by 2"]


def test_margins_of_the_vulnerability_index_are_those_of_its_estimates():
    roles = column_roles(["STCNTY", "E_TOTPOP", "M_TOTPOP", "EP_POV150", "MP_POV150", "EPL_POV150"])
    factor = NINETY_PERCENT
    assert roles.errors == {
        "E_TOTPOP": Bar("sigma", ["M_TOTPOP"], factor), "EP_POV150": Bar("sigma", ["MP_POV150"], factor),
    }  # fmt: skip
    assert roles.ignored == {"STCNTY": "identifier"}
    assert not roles.doubtful


def test_flags_of_the_vulnerability_index_are_no_features():
    shares = ["EP_POV150", "EPL_UNEMP", "SPL_THEME1", "SPL_THEMES"]
    flags = ["F_POV150", "F_UNEMP", "F_THEME1", "F_TOTAL"]
    roles = column_roles([*shares, *flags, "F_SCORE"])
    assert roles.ignored == {
        flag: f"flag or note of {share!r}" for flag, share in zip(flags, shares, strict=True)
    }  # fmt: skip
    assert not roles.doubtful


@pytest.mark.parametrize(
    ("names", "positions"),
    [
        ("glon glat flux", "glon glat"),
        ("_Glon _Glat flux", "_Glon _Glat"),
        ("elon elat sy_vmag", "elon elat"),
        ("ecl_lon ecl_lat gal_l2 gal_b2 flux", "ecl_lon ecl_lat gal_l2 gal_b2"),
        ("RAJ2000 DEJ2000 GLON GLAT flux", "RAJ2000 DEJ2000 GLON GLAT"),
        ("ra dec l b u", "ra dec l b"),
        ("L a b", ""),  # a colour
        ("l b flux", ""),
        ("glon flux", ""),
    ],
)
def test_pairs_of_coordinates_are_positions(names, positions):
    assert column_roles(names.split()).ignored == dict.fromkeys(positions.split(), "position")


def test_ellipses_of_positions_are_no_features_beside_the_position():
    ellipses = ["err_ellipse_r0", "err_ellipse_ang", "Conf_95_SemiMajor", "Conf_68_PosAng"]
    for position, named in (("ra", ellipses[:2]), ("RAJ2000", ellipses[2:])):
        roles = column_roles([position, "dec", *named, "flux"])
        assert {*named} <= roles.ignored.keys()
        assert not roles.doubtful


def test_tables_show_names_with_brackets_as_they_are(capsys):
    show_table({"column": ["Hb [g/dL]", "[/b]", ":smile:"], "[bold]": [1, 2, 3]})
    assert capsys.readouterr().out.split() == ["column", "[bold]", "Hb", "[g/dL]", "1", "[/b]", "2", ":smile:", "3"]


def test_numbers_of_notes_are_no_features_and_numbers_of_planets_are():
    names = ["pl_orbper", "pl_orbpererr1", "pl_orbpererr2", "pl_nnotes", "pl_ntranspec", "st_nspec", "sy_pnum"]
    assert {*column_roles(names).ignored} == {"pl_nnotes", "pl_ntranspec", "st_nspec"}
    assert not column_roles(["pl_nnotes", "st_nspec"]).ignored


def test_numbers_of_sloan_are_identifiers_beside_its_objects_without_errors():
    sloan = ["run", "rerun", "camcol", "field", "plate", "mjd", "fiberid"]
    for also in (["objid"], ["SpecObjID"], ["Z", "Z_ERR", "ZWARNING"]):
        assert {*sloan} <= column_roles([*also, *sloan, "u", "g"]).ignored.keys()


def test_positions_with_decl_and_flags_of_a_catalogue():
    assert column_roles(["ra", "decl", "flux"]).ignored == {"ra": "position", "decl": "position"}
    assert [*column_roles(["Fx", "e_Fx", "q_Pos"]).doubtful] == ["q_Pos"]
    assert not column_roles(["Fx", "q_Pos"]).doubtful


def test_integers_with_names_of_identifiers_are_doubtful_and_few_are_not(tmp_path):
    frame = pd.DataFrame({"BRICKID": np.arange(N) % 30, "ROI_num": np.arange(N) % 25, "covid": EVEN})
    plan = planned(frame.assign(a=numbers(0), y=KIND), tmp_path)
    assert {*plan.doubtful} == {"BRICKID", "ROI_num"}
    assert plan.settled_by == ["--drop 'BRICKID'", "--drop 'ROI_num'"]


def test_constant_flags_are_ignored_and_not_asked_about(tmp_path):
    frame = pd.DataFrame(
        {"a": numbers(0), "a_err": errors(0), "x_flag": 0, "ph_qual": "AAA", "b_flag": EVEN, "y": KIND}
    )
    plan = planned(frame, tmp_path)
    assert [*plan.doubtful] == ["b_flag"]
    assert plan.as_dict()["x_flag"] == plan.as_dict()["ph_qual"] == "ignored: constant"


def test_margins_of_controlled_estimates_are_dropped_by_the_remedy(tmp_path, monkeypatch, capsys):
    """The census writes -555555555 where an estimate has no error."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"B1_001E": numbers(0), "B1_001M": errors(0), "B2_001E": numbers(1), "B2_001M": -555555555})
    frame.assign(y=KIND).to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", *LINEAR]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'B2_001M' has -555555555 and no error in all rows; dropped, 'B2_001E' is exact" in line
    assert main(shlex.split(line[line.index("gaussguru fit") :])[1:]) == 0
    assert read_model("m").layout.errors.keys() == {"B1_001E"}
    assert read_model("m").layout.values == ["B1_001E", "B2_001E"]


def test_columns_of_arrays_are_ignored_as_such(tmp_path):
    arrays = pa.array([[1.0, 2.0]] * N)
    table = {"a": numbers(0), "a_err": errors(0), "spectrum": arrays, "y": KIND}
    pyarrow.feather.write_feather(pa.table(table), tmp_path / "t.feather")
    assert plan_of(tmp_path / "t.feather", "y").as_dict()["spectrum"] == "ignored: arrays in cells"


def test_a_margin_of_an_estimate_that_is_not_there_is_doubtful():
    assert column_roles(["a", "DP03_0128PM"]).doubtful.keys() == {"DP03_0128PM"}


def test_errors_of_positions_are_not_features():
    roles = column_roles(["ra", "dec", "sigra", "sigdec", "sigradec", "w1mpro"])
    assert roles.ignored.keys() == {"ra", "dec", "sigra", "sigdec", "sigradec"}


@pytest.mark.parametrize("pattern", ["d{x}", "Δ{x}", "∆{x}", "delta_{x}"])
def test_differences_may_be_errors_where_none_is_negative(tmp_path, pattern):
    frame = pd.DataFrame({"col": numbers(0), pattern.format(x="col"): errors(1), "distance": numbers(2), "y": KIND})
    plan = planned(frame, tmp_path)
    assert list(plan.doubtful) == [pattern.format(x="col")]
    assert plan.settled_by == [f"--err-pattern {shlex.quote(pattern)}"]
    layout = planned(frame, tmp_path, err_pattern=[pattern]).check()
    assert layout.errors == {"col": Bar("sigma", [pattern.format(x="col")])}
    assert layout.values == ["col", "distance"]
    frame[pattern.format(x="col")] -= 0.1
    assert len(planned(frame, tmp_path).check().values) == 3


@pytest.mark.parametrize("pattern", ["{x}_fehler", "fehler {x}", "{x}Unsicherheit"])
def test_errors_in_another_language_are_refused_until_a_pattern_names_them(tmp_path, monkeypatch, capsys, pattern):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({name: numbers(j) for j, name in enumerate(("Wert", "Dichte", "c"))} | {"y": KIND})
    columns = [pattern.format(x=name) for name in ("Wert", "Dichte")]
    frame[columns] = np.column_stack([errors(1), errors(2)])
    plan = planned(frame, tmp_path)
    assert list(plan.doubtful) == columns
    assert plan.settled_by == [f"--err-pattern {shlex.quote(pattern)}"]
    assert not plan.notes
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", *LINEAR]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert main(shlex.split(line[line.index("gaussguru fit") :])[1:]) in (0, 3)
    assert [bar.columns for bar in read_model("m").layout.errors.values()] == [[name] for name in columns]


def test_names_with_the_same_ending_are_features_if_their_numbers_are_no_errors(tmp_path):
    frame = pd.DataFrame({f"{name}{end}": numbers(j, 1, 9) for j, name in enumerate("ab") for end in ("", "_max")})
    assert len(planned(frame.assign(y=KIND), tmp_path).check().values) == 4
    frame = pd.DataFrame({name: numbers(j) for j, name in enumerate("ab")} | {"a_n": EVEN, "b_n": EVEN + 1, "y": KIND})
    assert len(planned(frame, tmp_path).check().values) == 4


@pytest.mark.parametrize("form", ["{:.2f}±{:.2f}", "{:.2f} +/- {:.2f}", "{:.2f}+-{:.2f}", "{0:.2f}(4)"])
def test_values_with_errors_in_one_cell_are_refused(tmp_path, form):
    cells = [form.format(*pair) for pair in zip(numbers(0), errors(0), strict=True)]
    plan = planned(pd.DataFrame({"a": numbers(1), "b": cells, "y": KIND}), tmp_path)
    with pytest.raises(TableError, match="'b' has values with errors in one cell: split the column"):
        plan.check()


def test_columns_of_another_sheet_are_shown_and_named(tmp_path, monkeypatch, capsys):
    pytest.importorskip("openpyxl")
    monkeypatch.chdir(tmp_path)
    with pd.ExcelWriter("t.xlsx") as book:
        pd.DataFrame({"Study": ["a"], "PI": ["b"]}).to_excel(book, sheet_name="About", index=False)
        pd.DataFrame({"a": numbers(0), "a_err": errors(0), "y": KIND}).to_excel(book, sheet_name="Data", index=False)
    for command in (["columns"], ["fit", "-o", "m"]):
        assert main([*command, "t.xlsx", "--target", "y"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "no column 'y' for --target; there are Study, PI; t.xlsx has 2 tables (About, Data)" in line
        assert "--table NAME or NUMBER chooses" in line
    assert main(["columns", "t.xlsx", "--target", "y", "--table", "Data", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == "1 feature, 1 with errors"


@pytest.mark.parametrize(
    ("name", "columns"),
    [("sloan", "run rerun camcol field plate mjd fiberID"), ("gaia", "ref_epoch"), ("census", "state county tract")],
)
def test_numbers_of_an_archive_are_identifiers_beside_its_columns(tmp_path, name, columns):
    make, target, bars, _ = ARCHIVES[name]
    added = {column: np.arange(N) // 2 % (3 + j) for j, column in enumerate(columns.split())}
    plan = planned(make().assign(**added), tmp_path, target)
    assert {*columns.split()} <= {column.name for column in plan.columns if column.role == "identifier"}
    assert plan.check().values == [*bars]
    alone = planned(pd.DataFrame({"a": numbers(0), **added, "y": KIND}), tmp_path)
    assert alone.check().values == ["a", *columns.split()]


def test_constants_are_ignored_with_their_errors(tmp_path):
    frame = pd.DataFrame({"a": numbers(0), "b": 7, "c": 2016.0, "c_err": errors(1), "d": True, "y": KIND})
    plan = planned(frame, tmp_path)
    assert plan.check().numbers == ["a"]
    assert [column.reason for column in plan.columns[1:3]] == ["constant", "constant"]
    assert planned(frame, tmp_path, roles=["value:b"]).check().values == ["a", "b"]
    with pytest.raises(TableError, match=r"no column for a feature beside the target 'y'; ignored: 'b' \(constant\)"):
        planned(frame[["b", "y"]], tmp_path)


@pytest.mark.parametrize(
    ("mean", "spread", "pattern"),
    [("mag_mean", "mag_sd", "{x}_sd"), ("mean_mag", "sd_mag", "sd_{x}"), ("Mean(mag)", "SD(mag)", "SD({x})"),
     ("mag_avg", "mag_std", "{x}_std")],
)  # fmt: skip
def test_the_spread_of_readings_is_not_the_error_of_their_mean(tmp_path, mean, spread, pattern):
    frame = pd.DataFrame({mean: numbers(0), spread: errors(0), "b": numbers(1), "y": KIND})
    plan = planned(frame, tmp_path)
    assert f"the spread of the readings with the mean {mean!r}, not the error of this mean" in plan.doubtful[spread][0]
    assert plan.settled_by == [f"--err-pattern {shlex.quote(pattern)}"]
    assert not plan.notes
    assert not any(column.unit for column in plan.columns)
    assert planned(frame, tmp_path, err_pattern=[pattern]).check().errors == {mean: Bar("sigma", [spread])}


def test_columns_without_values_are_ignored(tmp_path):
    plan = planned(pd.DataFrame({"a": numbers(0), "b": np.nan, "c": ["...", "…"] * 30, "y": KIND}), tmp_path)
    assert plan.check().values == ["a"]
    assert [column.reason for column in plan.columns[1:3]] == [f"no value in the first {N} rows"] * 2
    frame = pd.DataFrame({"a": np.where(EVEN, "...", "1.5"), "a_err": 0.1, "y": KIND})
    assert planned(frame, tmp_path).columns[0].missing == N // 2


def test_a_second_header_is_refused(tmp_path):
    frame = pd.DataFrame({"GEO_ID": [f"{i}US" for i in range(N)], "B19013_001E": EVEN, "B19013_001M": 7, "y": KIND})
    titles = pd.DataFrame([["Geography", "Estimate!!Total", "Margin of Error!!Total", "class"]], columns=frame.columns)
    with pytest.raises(TableError, match=r"'Estimate!!Total' in row 1, .* row 1 looks like a second header"):
        planned(pd.concat([titles, frame]), tmp_path)


def test_columns_shows_decimal_commas(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"a": numbers(0), "a_err": errors(0), "k": EVEN, "y": KIND})
    frame.to_csv("t.csv", sep=";", decimal=",", index=False)
    assert main(["columns", "t.csv", "--target", "y"]) == 0
    assert "is it a decimal comma? Then give --decimal ," in capsys.readouterr().out
    assert main(["columns", "t.csv", "--target", "y", "--decimal", ","]) == 0
    assert "decimal comma" not in capsys.readouterr().out


LEAKS = {
    "a copy": (np.where(EVEN, "b", "a"), True),
    "a code": (EVEN * 3, True),
    "a truth value": (EVEN == 1, True),
    "a nearly perfect code": (np.where(np.arange(4 * N) == 7, 0, np.tile(EVEN, 4)), True),
    "a score": (EVEN + 0.9 * np.random.default_rng(0).random(N), True),
    "a score below and above": (np.where(EVEN, 1, -1) * np.random.default_rng(0).random(N), True),
    "a score with one error": (
        np.where(np.arange(N) == 7, 0.5, EVEN + 0.9 * np.random.default_rng(0).random(N)),
        False,
    ),
    "a good feature": (5 * EVEN + np.random.default_rng(0).standard_normal(N) * 2, False),
    "levels": (np.arange(N) % 7, False),
    "few rows": (np.where(np.arange(N) < 40, EVEN, np.nan), False),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_feature_that_alone_tells_the_label_is_named(tmp_path, name):
    column, leaks = LEAKS[name]
    labels = np.tile(KIND, len(column) // N)
    frame = pd.DataFrame({"a": np.random.default_rng(1).random(len(column)), "b": column, "y": labels})
    plan = planned(frame, tmp_path)
    assert plan.check().numbers[0] == "a"
    found = [note for note in plan.notes if note.startswith("LABEL LEAK? 'b' alone") and "--drop 'b'" in note]
    assert len(found) == leaks
    assert not any("'a'" in note for note in plan.notes)


def test_rare_classes_are_no_leaks(tmp_path):
    frame = pd.DataFrame({"a": np.arange(N)[::-1] ** 2, "y": np.where(np.arange(N) < 3, "u", "v")})
    assert not any("LEAK" in note for note in planned(frame, tmp_path).notes)


def test_the_side_without_errors_and_all_replicates_are_named(tmp_path):
    frame = pd.DataFrame({"F1": numbers(0), "e_F1": np.where(EVEN, np.nan, 0.1), "E_F1": errors(0), "y": KIND})
    assert list(planned(frame, tmp_path).doubtful) == ["e_F1"]
    frame = pd.DataFrame({f"r{j}": numbers(9, 5) + numbers(j, 0.1) for j in (1, 2, 3)} | {"y": KIND})
    assert list(planned(frame, tmp_path).doubtful) == ["r1", "r2", "r3"]


def test_the_separator_in_the_first_line_of_excel_is_used(tmp_path):
    rows = "".join(f"{i},5;{i * i};{'uv'[i % 2]}\n" for i in range(9))
    (tmp_path / "t.csv").write_text("sep=;\na, in %;b;y\n" + rows)
    table = open_table(str(tmp_path / "t.csv"), decimal=",")
    data = read_all(table, Plan.of(table, "y").check())
    table.close()
    np.testing.assert_array_equal(data.X, [[i + 0.5, i * i] for i in range(9)])
    (tmp_path / "t.csv").write_text("sep=;\n")
    with pytest.raises(TableError, match=r"t\.csv"):
        plan_of(tmp_path / "t.csv", "y")


LINEAR = ["--folds", "2", "--classifier", "error-bars", "--model", "linear"]
DOUBTS = {
    "errors of nothing": ({"x_sigma": errors(1)}, "x_sigma", "--drop 'x_sigma'"),
    "a flag of nothing": ({"quality_flag": EVEN}, "quality_flag", "--drop 'quality_flag'"),
    "one side": ({"a_err1": errors(1)}, "a_err1", "--drop 'a_err1'"),
    "two kinds": ({"a_err": errors(1), "a_sd": errors(2)}, "a_sd", "--drop 'a_sd'"),
    "-1 of errors": ({"a_err": np.where(np.arange(N) % 9, errors(2), -1.0)}, "a_err", "--na=-1"),
    "UKIDSS": ({"b": np.where(EVEN, -999999488.0, numbers(2))}, "b", "--na=-999999488"),
    "row numbers": ({"nth": np.arange(N) + 7}, "nth", "--drop 'nth'"),
    "long integers": ({"spectrum": many_digits(3)}, "spectrum", "--drop 'spectrum'"),
    "-9999": ({"b": np.where(EVEN, -9999.0, numbers(2))}, "b", "--na=-9999"),
    "1e30": ({"b": np.where(np.arange(N) == 3, 1e30, numbers(2))}, "b", "--na=1e+30"),
    "99 of 99": ({"a_err": np.where(EVEN, 99.0, errors(2))}, "a_err", "--na=99"),
    "replicates": ({f"r{j}": numbers(9, 5) + numbers(j, 0.1) for j in (1, 2, 3)}, "r1", "--replicates 'r{1,2,3}'"),
    "no error": ({"a_err": np.where(EVEN, np.nan, errors(2))}, "a_err", "--missing-error unmeasured"),
    "interval": ({"a_upper": numbers(0) + 1, "a_lower": numbers(0) - 1}, "a_upper", "--error-level LEVEL"),
    "units": ({"a [mJy]": numbers(3), "a_err [s]": errors(1)}, "a_err [s]", "--drop 'a_err [s]'"),
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBTS)
def test_a_doubtful_column_is_refused_until_it_is_named(tmp_path, monkeypatch, capsys, name):
    """The error is one line, and the command at its end works as printed."""
    monkeypatch.chdir(tmp_path)
    columns, doubtful, option = DOUBTS[name]
    frame = pd.DataFrame({"c": numbers(5), "d": numbers(6), **columns, "y": KIND})
    if "a [mJy]" not in columns:
        frame["a"] = numbers(0)
    frame.to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", *LINEAR]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert repr(doubtful) in line
    assert option in line
    command = shlex.split(line[line.index("gaussguru fit") :])
    if "LEVEL" in command:
        assert main(command[1:]) == 2
        assert "Invalid value for '--error-level'" in capsys.readouterr().err
        command[command.index("LEVEL")] = "0.95"
    assert main(command[1:]) in (0, 3)


def test_all_doubtful_columns_are_in_one_line_whose_command_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"a": numbers(0), "a_err": errors(0), "b": np.where(EVEN, -9999.0, numbers(2)), "y": KIND})
    frame = frame.assign(nth=np.arange(N), **{f"x{j}_unc": errors(j) for j in range(3)})
    frame.assign(**{f"a long name of column {j}_flag": EVEN for j in range(40)}).to_csv("many.csv", index=False)
    frame.to_csv("t.csv", index=False)
    for file, words in (("t.csv", "--drop 'nth'"), ("many.csv", "--drop-doubtful")):
        call = ["fit", file, "--target", "y", "-o", file + ".m", "--folds", "2", "--model", "linear"]
        assert main(call) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert len(line) < 1100
        assert words in line
        command = shlex.split(line[line.index("gaussguru fit") :])
        assert main(command[1:]) in (0, 3)
        assert read_model(file + ".m").layout.features == ["a", "b"]
        capsys.readouterr()


def test_a_plan_is_shown_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exoplanets().to_csv("t.csv", index=False)
    assert main(["columns", "t.csv", "--target", "tfopwg_disp", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    roles = {column["name"]: column["role"] for column in shown["columns"]}
    assert roles["pl_radeerr1"] == "error of pl_rade"
    assert roles["pl_radelim"] == "limit flag of pl_rade"
    assert shown["summary"].startswith(
        "3 features, 3 with errors; ignored: rowid, toi, tid, toi_created (identifiers), ra, dec (positions)"
    )
    assert shown["doubtful"] == {}
    assert main(["fit", "t.csv", "--target", "tfopwg_disp", "-o", "m", "--model", "linear", "--folds", "2"]) in (0, 3)
    told = capsys.readouterr().err
    assert shown["summary"] in told
    assert "NASA Exoplanet Archive" in told
    assert read_model("m").card["columns"]["pl_radeerr2"] == "error of pl_rade: lower side"


def test_no_error_columns_are_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"a": numbers(0), "b": numbers(1), "y": KIND}).to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", "--sigma", "0.3"]) == 0
    assert "NO ERROR COLUMNS FOUND: features are taken as exact, for --classifier guru" in capsys.readouterr().err


def test_names_that_only_resemble_are_features(tmp_path):
    """Independent columns x1, x2, ...; colours; a hip circumference; a month; sorted values; ages up to 99."""
    frame = pd.DataFrame({f"x{j}": numbers(j) for j in range(1, 5)} | {"u": numbers(7), "g": numbers(8)})
    frame = frame.assign(u_g=frame["u"] - frame["g"], hip=numbers(9, 5, 90), dec=numbers(10), speed=numbers(11, 9, 60))
    frame = frame.assign(
        speed_limit=np.where(EVEN, 50, 70), age=np.r_[np.arange(99, 39, -2), np.arange(40, 99, 2)], y=KIND
    )
    plan = planned(frame, tmp_path)
    assert plan.check().features == [name for name in frame if name != "y"]


def test_errors_in_other_units_are_converted_or_refused(tmp_path):
    frame = pd.DataFrame({"a [mJy]": numbers(0), "a_err [uJy]": errors(0, 100.0), "y": KIND})
    plan = planned(frame, tmp_path)
    try:
        import astropy  # noqa: F401, PLC0415  an extra
    except ImportError:
        assert "'uJy'" in plan.doubtful["a_err [uJy]"][0]
    else:
        assert plan.check().errors["a [mJy]"].factor == pytest.approx(1e-3)


def test_roles_by_options(tmp_path):
    frame = pd.DataFrame({"a": numbers(0, 1, 9), "a_fehler": errors(0), "id": many_digits(1), "k": EVEN * 2, "y": KIND})
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(TableError, match=r"is that of a feature in \{x\}_fehlr"):
        plan_of(tmp_path / "t.csv", "y", err_pattern=["{x}_fehlr"])
    data = read(tmp_path / "t.csv", "y", err_pattern=["{x}_fehler"], roles=["value:id", "category:k"])
    assert data.layout.features == ["a", "id", "k=2"]
    np.testing.assert_allclose(data.X_err, np.column_stack([errors(0), np.zeros(N), np.zeros(N)]))
    np.testing.assert_array_equal(data.X["k=2"], EVEN)
    half = read(tmp_path / "t.csv", "y", err_pattern=["{x}_fehler"], error_factor=0.5)
    np.testing.assert_allclose(half.X_err[:, 0], errors(0) / 2)
    level = read(tmp_path / "t.csv", "y", err_pattern=["{x}_fehler"], error_level=0.9)
    np.testing.assert_allclose(level.X_err[:, 0], errors(0) * NINETY_PERCENT)
    log = read(tmp_path / "t.csv", "y", err_pattern=["{x}_fehler"], log=["a"])
    np.testing.assert_allclose(log.X["a"], np.log(numbers(0, 1, 9)))
    np.testing.assert_allclose(log.X_err[:, 0], np.sqrt(np.log1p((errors(0) / numbers(0, 1, 9)) ** 2)))
    for bad, words in (
        ({"roles": ["error:a"]}, "--as must be value:COL"),
        ({"error_level": 1.5}, "--error-level must be between"),
        ({"error_factor": -1.0}, "--error-factor must be"),
        ({"error_factor": 2.0, "error_level": 0.9}, "leave one out"),
        ({"log": ["id"]}, "no feature with numbers, for --log"),
        ({"replicates": ["a"]}, "--replicates must be a name"),
    ):
        with pytest.raises(TableError, match=words):
            plan_of(tmp_path / "t.csv", "y", err_pattern=["{x}_fehler"], **bad)


def test_numbers_that_stand_for_none_and_errors_that_are_missing(tmp_path):
    frame = pd.DataFrame({"a": np.where(EVEN, -9999.0, 1.5), "a_err": errors(0), "y": KIND})
    frame.loc[2, "a_err"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = np.where(EVEN, np.inf, errors(0))
    for rule, error in (("unmeasured", np.inf), ("exact", 0.0)):
        data = read(tmp_path / "t.csv", "y", na=[-9999.0], missing_error=rule)
        expected[2] = error
        np.testing.assert_allclose(data.X_err[:, 0], expected)
    with pytest.raises(TableError, match=r"'a_err' has nan in row 3; expected is an error for every value"):
        read(tmp_path / "t.csv", "y", na=[-9999.0], missing_error="refuse")


def test_replicates_are_means_with_the_spread_within_rows(tmp_path):
    parts = [numbers(9, 5) + numbers(j, 0.1) for j in range(3)]
    frame = pd.DataFrame({"c": numbers(1)} | {f"x{j + 1}": part for j, part in enumerate(parts)} | {"y": KIND})
    frame.loc[4, "x2"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = read(tmp_path / "t.csv", "y", replicates=["x{1,2,3}"])
    values = frame[["x1", "x2", "x3"]].to_numpy()
    complete = np.isfinite(values).all(axis=1)
    spread = np.sqrt(values[complete].var(axis=1, ddof=1).mean())
    assert data.layout.features == ["c", "x"]
    np.testing.assert_allclose(data.X["x"], np.nanmean(values, axis=1))
    np.testing.assert_allclose(data.X_err[:, 1], spread / np.sqrt(np.isfinite(values).sum(axis=1)))


def test_categories_at_prediction(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"a": numbers(0), "a_err": errors(0), "k": np.array(["u", "v", "w"])[np.arange(N) % 3]})
    frame.assign(y=KIND).to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", "--folds", "2", "--model", "linear", "-q"]) in (0, 3)
    assert read_model("m").layout.features == ["a", "k=v", "k=w"]
    frame.loc[3, "k"] = "new"
    frame.to_csv("new.csv", index=False)
    capsys.readouterr()
    assert main(["predict", "m", "new.csv"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == N + 1
    assert "column 'k' has 'new' in 1 rows, unknown to the model: not measured" in err


def test_broken_cells_are_listed_at_once(tmp_path):
    frame = pd.DataFrame({"a": numbers(0), "a_err": errors(0), "b": numbers(1), "b_err": errors(1), "y": KIND})
    frame.loc[3, "a_err"], frame.loc[5, "b_err"], frame.loc[7, "b"] = -1.0, -2.0, np.inf
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(TableError) as raised:
        read(tmp_path / "t.csv", "y")
    message = str(raised.value)
    for words in ("'b' has inf in row 8", "-1 in 'a_err' in row 4", "-2 in 'b_err' in row 6"):
        assert words in message
    frame["a_err"] = -1.0
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(TableError, match=r"and 42 more cells; 62 in all"):
        read(tmp_path / "t.csv", "y")


def refusal(path, **options):
    """Return the error of reading a table."""
    table = open_table(str(path), **options)
    try:
        with pytest.raises(TableError) as raised:
            read_all(table, Plan.of(table, "y").check())
    finally:
        table.close()
    return str(raised.value)


@pytest.mark.parametrize("packed", [False, True])
def test_cells_that_are_no_numbers_are_listed_at_once(tmp_path, monkeypatch, packed):
    """In all blocks of the file, with what Arrow takes for numbers, quotes, lines in texts, and comments."""
    monkeypatch.setattr(base, "BLOCK", 1000)
    good = ["1", "+1", " -1.5e3 ", "nan", "Infinity", ".5", "1.", "", "NA", '"2"']
    rows = [f'{good[i % 10]},{0.1 * i},{i % 7},"two\nlines",{"xy"[i % 2]}' for i in range(8000)]
    rows[150], rows[3333] = "one,1,true,t,x", '2,"1_000",3,t,y'
    rows[3334], rows[7999] = "0x10,oops,5,t,x", "1e,2,5,t,x"
    lines = ["# a comment", "a,b,c,text,y", *rows[:200], "# another", *rows[200:]]
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    message = refusal(path, limits=FileLimits(line=40_000))
    expected = {("a", "one", 151), ("c", "true", 151), ("b", "1_000", 3334), ("a", "0x10", 3335), ("b", "oops", 3335),
                ("a", "1e", 8000)}  # fmt: skip
    found = re.findall(r"column '(\w)' has '(\w+)' in row (\d+)", message)
    found = [(column, cell, int(row)) for column, cell, row in found]
    found += [(c, cell, int(row)) for cell, c, row in re.findall(r"'(\w+)' in '(\w)' in row (\d+)", message)]
    assert {*found} == expected
    assert len(found) == len(expected)
    assert "--drop 'a'" in message


def test_thousands_of_columns_with_broken_cells_are_counted_soon(tmp_path):
    n, d = 30, 10_000
    table = np.random.default_rng(0).integers(0, 9, (n, d)).astype(str)
    table[n // 2] = "?"
    lines = [",".join([*row, "xy"[i % 2]]) for i, row in enumerate(table)]
    (tmp_path / "t.csv").write_text("\n".join([",".join([*(f"x{j}" for j in range(d)), "y"]), *lines]))
    begin = time.process_time()
    message = refusal(tmp_path / "t.csv")
    assert time.process_time() - begin < 20
    assert f"'x0' has '?' in row {n // 2 + 1}" in message
    assert message.endswith("and 9980 more cells; 10000 in all")


def test_decimal_commas_are_told(tmp_path):
    rows = "".join(f"{i},5;{i};{'uv'[i % 2]}\n" for i in range(9))
    (tmp_path / "t.csv").write_text("a;b;y\n" + rows)
    message = refusal(tmp_path / "t.csv")
    assert "'a' has decimal commas" in message
    assert message.endswith("to go on without: --decimal ,")


@pytest.mark.parametrize("name", ["exoplanets", "vizier", "gaia", "clinic", "spectra"])
def test_rows_in_parts_are_those_in_memory(tmp_path, monkeypatch, name):
    make, target, *_ = ARCHIVES[name]
    make().to_csv(tmp_path / "t.csv", index=False)
    whole = read(tmp_path / "t.csv", target)
    monkeypatch.setattr(base, "BLOCK", 2000)
    opened = str(tmp_path / "t.csv")
    rows, _ = streaming.convert([opened], open_table, whole.layout, str(tmp_path), lambda _: None)
    np.testing.assert_array_equal(np.concatenate([part().X for part in rows.X.parts(streaming_fields())]), whole.X)
    found, expected = (getattr(part, "err", part) for part in (rows.X_err, whole.X_err))
    np.testing.assert_array_equal(found, expected)
    if hasattr(whole.X_err, "sides"):
        np.testing.assert_array_equal(rows.X_err.sides, whole.X_err.sides)


def streaming_fields():
    from gaussguru.sources.base import Fields  # noqa: PLC0415

    return Fields()


def test_wide_tables_are_planned_soon(tmp_path):
    columns = {f"gene_{j}": pa.array(np.random.default_rng(j).standard_normal(30)) for j in range(10_000)}
    pa.parquet.write_table(pa.table({**columns, "y": ["a", "b"] * 15}), tmp_path / "t.parquet")
    begin = time.process_time()
    assert len(plan_of(tmp_path / "t.parquet", "y").check().features) == 10_000
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("pattern", ["{x}_fehler", "fehler {x}"])
def test_patterns_count_before_conventions(pattern):
    names = ["a", pattern.format(x="a"), "a_err"]
    roles = column_roles(names, patterns=[pattern])
    assert roles.errors == {"a": Bar("sigma", [names[1]])}
    assert roles.doubtful.keys() == {"a_err"}


def test_held_out_rows_judge_a_model_and_training_rows_do_not(tmp_path, monkeypatch, capsys):
    """Scores of --test-size are those of a fit to the other rows; an evaluation of training rows says so first."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"a": numbers(0), "a_err": errors(0), "b": numbers(1), "y": KIND})
    frame.to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", *LINEAR, "--test-size", "0.25"]) in (0, 3)
    assert "15 rows held out: accuracy " in capsys.readouterr().err
    model = read_model("m")
    _, held = train_test_split(np.arange(N), test_size=0.25, stratify=KIND, random_state=0)
    held.sort()
    frame.iloc[held].to_csv("held.csv", index=False)
    frame.drop(index=held).to_csv("rest.csv", index=False)
    assert main(["fit", "rest.csv", "--target", "y", "-o", "rest", *LINEAR, "-q"]) in (0, 3)
    assert main(["evaluate", "rest", "held.csv", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["training_rows"] is False
    for name in ("verdict", "rows", "accuracy", "log_loss"):
        assert model.card["held_out"][name] == pytest.approx(result[name])
    assert main(["evaluate", "rest", "rest.csv"]) == 0
    assert capsys.readouterr().out.startswith("The model was fitted to this file: ")
    monkeypatch.setattr(streaming, "LARGE", 100)
    assert main(["fit", "t.csv", "--target", "y", "-o", "parts", *LINEAR, "-q"]) in (0, 3)
    assert main(["evaluate", "parts", "t.csv"]) == 0
    assert capsys.readouterr().out.startswith("The model was fitted to this file: ")
    for size, words in (("0.25", "read into memory"), ("1.5", "between 0 and 1")):
        assert main(["fit", "t.csv", "--target", "y", "-o", "n", *LINEAR, "--test-size", size]) == 2
        assert words in capsys.readouterr().err


WEIGHTS = np.arange(N) // 2 % 4 / 2
GROUPS = np.array([f"site {i // 6}" for i in range(N)])


def grouped():
    """Return values with errors, weights and groups; those of a group are alike."""
    shift = np.repeat(np.random.default_rng(5).standard_normal(N // 6), 6)
    columns = {"a": numbers(0) + shift, "a_err": errors(0), "b": numbers(1) - shift, "b_err": errors(1)}
    return pd.DataFrame(columns | {"w": WEIGHTS, "site": GROUPS, "y": KIND})


GURU = ["--classifier", "guru", "--no-errors", "--no-scale", "--tol", "1e-9"]
GIVEN = {"sample_weight": WEIGHTS}
FOLDS = StratifiedGroupKFold(3)
LEVELS = [3.0, 1.0, 0.1]
BY_HAND = {
    "guru": ([*GURU, "--sigma", "0.5"], lambda X, E: GuruClassifier(0.5, tol=1e-9).fit(X, KIND, **GIVEN)),
    "guru cv": (
        [*GURU, "--sigma", "3,1,0.1", "--groups", "site", "--folds", "3"],
        lambda X, E: GuruClassifierCV(LEVELS, tol=1e-9, cv=[*FOLDS.split(X, KIND, GROUPS)]).fit(X, KIND, **GIVEN),
    ),
    "kernel": (
        [*GURU, "--sigma", "0.5", "--kernel", "rbf"],
        lambda X, E: KernelGuruClassifier(0.5, tol=1e-9, kernel="rbf").fit(X, KIND, **GIVEN),
    ),
    "linear": (
        [*LINEAR, "--groups", "site"],
        lambda X, E: ErrorBarClassifier(cv=2, model="linear", random_state=0).fit(
            X, KIND, X_err=E, groups=GROUPS, **GIVEN
        ),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_weights_and_groups_are_those_of_the_library(tmp_path, monkeypatch, capsys, name):
    """In the plan, the card and the summary; predictions need neither column."""
    monkeypatch.chdir(tmp_path)
    options, fitted = BY_HAND[name]
    frame = grouped()
    frame.to_csv("t.csv", index=False)
    by_hand = fitted(frame[["a", "b"]], frame[["a_err", "b_err"]].to_numpy())
    drop = [] if "--groups" in options else ["--drop", "site"]
    call = ["t.csv", "--target", "y", "--weights", "w", *drop]
    assert main(["fit", *call, *options, "-o", "m"]) in (0, 3)
    talk, model = capsys.readouterr().err, read_model("m")
    X, X_err = frame[["a", "b"]], frame[["a_err", "b_err"]].to_numpy() if model.layout.errors else None
    expected = by_hand.predict_proba(X, X_err)
    np.testing.assert_allclose(model.classifier.predict_proba(X, X_err), expected, rtol=1e-5, atol=1e-6)
    assert model.layout.features == ["a", "b"]
    assert model.card["columns"]["w"] == "weight"
    assert model.card["layout"]["weights"] == "w"
    assert model.card["data"]["rows_used"] == np.count_nonzero(WEIGHTS)
    assert "weights in 'w'" in talk
    if not drop:
        assert model.card["columns"]["site"] == "group"
        assert "groups in 'site'" in talk
    if name == "guru cv":
        assert model.card["cross_validation"]["accuracy"] == pytest.approx(by_hand.scores_.mean(axis=1).tolist())
    frame.drop(columns=["w", "site"]).to_csv("new.csv", index=False)
    assert main(["predict", "m", "new.csv"]) == 0
    assert main(["evaluate", "m", "new.csv"]) == 0


def test_cross_validation_of_a_kernel_counts_weights_and_keeps_groups_in_one_fold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = grouped()
    frame.to_csv("t.csv", index=False)
    call = ["fit", "t.csv", "--target", "y", "--weights", "w", "--groups", "site", "--folds", "3"]
    assert main([*call, *GURU, "--kernel", "rbf", "--sigma", "0.5,0.05", "-o", "m"]) in (0, 3)
    X = frame[["a", "b"]].to_numpy()
    accuracy = []
    for level in (0.5, 0.05):
        scores = []
        for train, test in FOLDS.split(X, KIND, GROUPS):
            model = KernelGuruClassifier(level, kernel="rbf", tol=1e-9)
            model.fit(X[train], KIND[train], sample_weight=WEIGHTS[train])
            scores.append(np.average(model.predict(X[test]) == KIND[test], weights=WEIGHTS[test]))
        accuracy.append(np.mean(scores))
    assert read_model("m").card["cross_validation"]["accuracy"] == pytest.approx(accuracy)


def test_weight_two_is_a_row_that_occurs_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = grouped().assign(w=np.arange(N) // 2 % 3)
    frame.to_csv("t.csv", index=False)
    frame.loc[np.repeat(np.arange(N), frame["w"])].to_csv("twice.csv", index=False)
    for name, more in (("t", ["--weights", "w"]), ("twice", ["--drop", "w"])):
        call = ["fit", f"{name}.csv", "--target", "y", "--drop", "site", *more]
        assert main([*call, *GURU, "--sigma", "0.5", "-o", name]) in (0, 3)
    one, other = read_model("t"), read_model("twice")
    np.testing.assert_allclose(one.classifier.coef_, other.classifier.coef_, rtol=1e-4)
    for key in ("objective", "training_accuracy"):
        assert one.card["fit"][key] == pytest.approx(other.card["fit"][key], rel=1e-6)


def test_held_out_rows_are_whole_groups(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = grouped()
    frame.to_csv("t.csv", index=False)
    data = read(tmp_path / "t.csv", "y", weights="w", groups="site")
    kept, held = split_rows(data, 0.3)
    _, rows = next(GroupShuffleSplit(1, test_size=0.3, random_state=0).split(data.X, groups=GROUPS))
    np.testing.assert_array_equal(held.X, data.X.iloc[np.sort(rows)])
    assert {*kept.groups}.isdisjoint(held.groups)
    assert len({*held.groups}) == 3
    np.testing.assert_array_equal(held.weights, WEIGHTS[np.sort(rows)])
    call = ["fit", "t.csv", "--target", "y", "--groups", "site", "--weights", "w", *LINEAR, "--test-size", "0.3"]
    assert main([*call, "-o", "m"]) in (0, 3)
    assert "18 rows held out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"w": np.where(EVEN, 1.0, -1.0)}, ["--weights", "w"], "'w' has -1 in row 1; expected is a weight"),
        ({"w": [1.0, None] * 30}, ["--weights", "w"], "'w' has nan in row 2; expected is a weight"),
        ({"w": [1.0, np.inf] * 30}, ["--weights", "w"], "'w' has inf in row 2; expected is a weight"),
        ({"w": 0}, ["--weights", "w"], "column 'w' has the weight 0 in all rows"),
        ({"w": EVEN}, ["--weights", "w"], "class 'no' has the weight 0 in all its rows, in column 'w'"),
        ({"w": ["x", "1"] * 30}, ["--weights", "w"], "'w' has 'x' in row 1"),
        ({"site": [None, "b"] * 30}, ["--groups", "site"], "'site' has '' in row 1; expected is a group"),
        ({"site": KIND}, ["--groups", "site"], "class 'no' has one group of column 'site', too few"),
        ({}, ["--weights", "y"], "'y' is the target and cannot be that of --weights"),
        ({}, ["--weights", "w", "--groups", "w"], "'w' is that of --weights and cannot be that of --groups"),
        ({}, ["--weights", "w", "--features", "w"], "'w' is that of --weights and cannot be one of --features"),
        ({}, ["--weights", "v"], "no column 'v' for --weights"),
        ({}, ["--groups", "site", *GURU, "--sigma", "1"], "--sigma 1 does not need"),
        ({"site": KIND}, ["--groups", "site", "--test-size", "0.5"], "holds out all groups of class"),
    ],
)
def test_weights_and_groups_that_cannot_be_used_are_refused(tmp_path, monkeypatch, capsys, change, options, words):
    monkeypatch.chdir(tmp_path)
    grouped().assign(**change).to_csv("t.csv", index=False)
    classifier = [] if "guru" in options else LINEAR
    drop = [part for name in ("w", "site") if name not in options for part in ("--drop", name)]
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", *classifier, *options, *drop]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize("name", ["guru cv", "linear"])
def test_groups_in_parts_are_those_of_memory(tmp_path, monkeypatch, capsys, name):
    """All rows of parts are drawn."""
    monkeypatch.chdir(tmp_path)
    grouped().to_csv("t.csv", index=False)
    options, _ = BY_HAND[name]
    call = ["fit", "t.csv", "--target", "y", "--drop", "w", *options]
    assert main([*call, "-o", "memory"]) in (0, 3)
    monkeypatch.setattr(streaming, "LARGE", 100)
    assert main([*call, "-o", "parts"]) in (0, 3)
    memory, parts = read_model("memory"), read_model("parts")
    assert parts.card["cross_validation"].keys() == memory.card["cross_validation"].keys()
    for column, values in memory.card["cross_validation"].items():
        if column != "method":
            np.testing.assert_allclose(parts.card["cross_validation"][column], values, rtol=1e-5)
    assert main([*call, "--dask", "tcp://127.0.0.1:1", "-o", "n"]) == 2
    assert "--groups is not for --dask" in capsys.readouterr().err


def test_words_among_numbers_are_named_and_then_no_value(tmp_path, monkeypatch, capsys):
    """In the fit and in predictions; one word alone, with digits, or of many kinds, is a broken cell."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"a": numbers(0), "a_err": errors(0), "b": numbers(1), "y": KIND}).astype({"b": object})
    frame.loc[[3, 7], "b"], frame.loc[[5, 9], "b"] = "---", "N.D."
    frame.to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", *LINEAR]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'b' has ---,N.D. where there may be no value" in line
    assert main(shlex.split(line[line.index("gaussguru fit") :])[1:]) in (0, 3)
    data = read(tmp_path / "t.csv", "y", na=["---,N.D."])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(data.X["b"])), [3, 5, 7, 9])
    frame.drop(columns="y").to_csv("new.csv", index=False)
    assert main(["predict", "m", "new.csv", "-o", "p.csv"]) == 0
    assert len(pd.read_csv("p.csv")) == N
    broken = frame.assign(b=np.where(np.arange(N) == 3, "---", "1.5"))
    assert planned(broken, tmp_path).check().values == ["a", "b"]
    assert "'b' has '---' in row 4; expected is a number" in refusal(tmp_path / "t.csv")
    with pytest.raises(TableError, match="--na must be numbers or words"):
        planned(frame, tmp_path, na=["1,,2"])


def test_category_is_the_role_of_that_name(tmp_path, monkeypatch):
    """For integers, which would be values, too."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"a": numbers(0), "grade": np.arange(N) % 3, "y": KIND})
    frame.to_csv("t.csv", index=False)
    call = ["fit", "t.csv", "--target", "y", "--sigma", "1", "-q"]
    for options in ([], ["--category", "grade"], ["--as", "category:grade"]):
        assert main([*call, *options, "-o", "m", "--force"]) == 0
        layout = read_model("m").layout
        assert layout.features == (["a", "grade=1", "grade=2"] if options else ["a", "grade"])
        assert layout.categories == ({"grade": ["0", "1", "2"]} if options else {})


@pytest.mark.parametrize("format", ["csv", "parquet", "feather"])
def test_words_in_columns_of_text_are_no_value_in_any_format(tmp_path, format):
    words = np.where(np.arange(N) % 7, np.char.mod("%.3f", numbers(0)), "  --- ")
    table = pa.table({"a": numbers(1), "b": words, "k": np.where(EVEN, "u", "---"), "y": KIND})
    path = str(tmp_path / f"t.{format}")
    {"csv": pa.csv.write_csv, "parquet": pa.parquet.write_table, "feather": pa.feather.write_feather}[format](
        table, path
    )
    assert list(plan_of(path, "y").doubtful) == ["b"]
    data = read(path, "y", na=["---"], missing="unmeasured")
    assert np.isnan(data.X["b"]).to_numpy().nonzero()[0].tolist() == [*range(0, N, 7)]
    assert data.layout.features == ["a", "b"]  # "k" has one level


def test_limits_in_cells_are_refused(tmp_path):
    cells = np.where(np.arange(N) % 9, np.char.mod("%.2f", numbers(0, 1, 9)), "<0.5")
    plan = planned(pd.DataFrame({"a": numbers(1), "b": cells, "y": KIND}), tmp_path)
    with pytest.raises(TableError, match=r"'b' has limits such as <0\.5 in cells: split the column"):
        plan.check()


def test_a_pipe_lists_all_broken_cells(monkeypatch, capsys):
    frame = pd.DataFrame({"a": numbers(0), "b": numbers(1), "y": KIND}).astype(object)
    frame.loc[3, "a"], frame.loc[50, "b"] = "oops", "1_0"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(frame.to_csv(index=False).encode())))
    assert main(["fit", "-", "--target", "y", "-o", "m", "--sigma", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "column 'a' has 'oops' in row 4" in line
    assert "'1_0' in 'b' in row 51" in line


def test_errors_that_are_all_empty_make_an_exact_feature(tmp_path):
    frame = pd.DataFrame({"a": numbers(0), "a_err": errors(0), "b": numbers(1), "b_err1": np.nan, "b_err2": np.nan})
    plan = planned(frame.assign(y=KIND), tmp_path)
    assert plan.check().errors.keys() == {"a"}
    assert "all errors of 'b' are empty: it is taken as exact" in plan.notes


SCORED = {
    "linear": ([], lambda: GuruClassifierCV([1.0, 0.1], cv=3, scoring="neg_log_loss", tol=1e-9)),
    "kernel": (["--kernel", "rbf"], lambda: GridSearchCV(
        KernelGuruClassifier(kernel="rbf", tol=1e-9), {"sigma": [1.0, 0.1]}, cv=3, scoring="neg_log_loss")),
}  # fmt: skip


@pytest.mark.parametrize("name", SCORED)
def test_sigma_is_chosen_by_another_score(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    options, by_hand = SCORED[name]
    frame = pd.DataFrame({"a": numbers(0), "b": numbers(1), "y": KIND})
    frame.to_csv("t.csv", index=False)
    call = ["fit", "t.csv", "--target", "y", *GURU, "--sigma", "0.1,1", "--folds", "3", "--scoring", "neg_log_loss"]
    assert main([*call, *options, "-o", "m"]) in (0, 3)
    assert "cross-validated neg_log_loss -0." in capsys.readouterr().err
    search = by_hand().fit(frame[["a", "b"]].to_numpy(), KIND)
    expected = search.scores_.mean(axis=1) if name == "linear" else search.cv_results_["mean_test_score"]
    card = read_model("m").card
    assert card["cross_validation"]["neg_log_loss"] == pytest.approx(list(expected), rel=1e-4)
    assert card["fit"]["cv_neg_log_loss"] == pytest.approx(max(expected), rel=1e-4)
    right = read_model("m").estimator.predict(frame[["a", "b"]]) == KIND
    assert card["fit"]["training_accuracy"] == pytest.approx(right.mean())
    for more, words in (
        (["--sigma", "1"], "--scoring neg_log_loss chooses sigma"),
        (["--scoring", "r2"], "'r2' is not"),
    ):
        assert main([*call, *more, "-o", "n"]) == 2
        assert words in capsys.readouterr().err
    assert main(["path", "t.csv", "--target", "y", "--scoring", "neg_log_loss", "--json", "--sigmas", "3"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cv_neg_log_loss"]) == 3


def test_a_path_counts_weights_and_keeps_groups_together(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = grouped()
    frame.to_csv("t.csv", index=False)
    call = ["path", "t.csv", "--target", "y", "--no-errors", "--no-scale", "--weights", "w", "--groups", "site"]
    assert main([*call, "--sigmas", "1,0.1", "--folds", "3", "--tol", "1e-9", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    X = frame[["a", "b"]].to_numpy()
    cv = [*FOLDS.split(X, KIND, GROUPS)]
    search = GuruClassifierCV([1.0, 0.1], tol=1e-9, cv=cv).fit(X, KIND, **GIVEN)
    assert found["cv_accuracy"] == pytest.approx(search.scores_.mean(axis=1).tolist())
    model = GuruClassifier(1.0, tol=1e-9).fit(X, KIND, **GIVEN)
    assert found["training_accuracy"][0] == pytest.approx(np.average(model.predict(X) == KIND, weights=WEIGHTS))


def test_a_table_with_decimal_commas_is_refused_with_a_command_that_works(tmp_path, monkeypatch, capsys):
    """Errors in German, units in brackets, a word for no value: all in one line."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"Nr.": np.arange(N) + 1, "Nitrat [mg/l]": numbers(0, 1, 20), "pH": numbers(3)})
    frame["Nitrat Messunsicherheit [mg/l]"] = errors(0)
    frame["Blei [ug/l]"], frame["Blei Messunsicherheit [ug/l]"] = numbers(1, 1, 20), errors(1)
    frame = frame.map(lambda cell: f"{cell:.3f}".replace(".", ",") if isinstance(cell, float) else cell)
    frame.loc[[2, 9], "Blei [ug/l]"] = "n.b."
    frame.assign(y=KIND).to_csv("t.csv", sep=";", index=False)
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", *LINEAR]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert main(shlex.split(line[line.index("gaussguru fit") :])[1:]) in (0, 3)
    layout = read_model("m").layout
    assert layout.features == ["Nitrat [mg/l]", "pH", "Blei [ug/l]"]
    assert layout.errors == {f"{x} [{u}/l]": Bar("sigma", [f"{x} Messunsicherheit [{u}/l]"])
                             for x, u in (("Nitrat", "mg"), ("Blei", "ug"))}  # fmt: skip
    assert "2 values not measured" in capsys.readouterr().err


def test_commas_of_thousands_are_not_taken_for_decimal_ones(tmp_path):
    frame = pd.DataFrame({"a": numbers(0), "b": [f"{12_000 + 7 * i:,}" for i in range(N)], "y": KIND})
    plan = planned(frame, tmp_path)
    assert plan.doubtful["b"] == ("has commas in numbers, of thousands (remove them) or decimal (--decimal ,)",
                                  ["--drop 'b'"])  # fmt: skip


def test_integers_that_are_all_different_and_named_as_identifiers_are_doubtful(tmp_path):
    frame = pd.DataFrame({"a": numbers(0), "SNID": many_digits(1, 10, 10**6), "acid": EVEN, "y": KIND})
    assert list(planned(frame, tmp_path).doubtful) == ["SNID"]
