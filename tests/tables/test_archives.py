"""Tables with the headers that archives give them, and invented values: ``gaussguru fit`` alone, and what it says.

A fit either uses the columns that a person who knows the archive would use, or is refused with one line that ends in a
command; that command, as printed, then makes such a fit.
"""

import shlex

import numpy as np
import pandas as pd
import pytest

from gaussguru.cli import main
from gaussguru.models import read_model

N = 120
KIND = np.where(np.arange(N) % 2, "A", "B")
EVEN = np.arange(N) % 2


class Invented:
    """Columns by name: values about a level, their errors, and what else archives have."""

    def __init__(self):
        self.rng, self.columns = np.random.default_rng(0), {}

    def value(self, name, level=10.0, spread=1.0):
        self.columns[name] = np.round(level + spread * (self.rng.standard_normal(N) + EVEN), 6)
        return self

    def error(self, name, size=0.2, sign=1.0):
        self.columns[name] = np.round(sign * size * self.rng.uniform(0.5, 1.5, N), 6)
        return self

    def measured(self, name, *errors, level=10.0, spread=1.0):
        self.value(name, level, spread)
        for error in errors:
            self.error(error, 0.2 * spread, -1.0 if error.endswith("err2") else 1.0)
        return self

    def flags(self, *names, shares=(0.9, 0.1)):
        for name in names:
            self.columns[name] = self.rng.choice(len(shares), N, p=shares)
        return self

    def numbers(self, *names, low=10**8):
        for name in names:
            self.columns[name] = self.rng.permutation(low + 997 * np.arange(N))
        return self

    def put(self, **columns):
        self.columns |= columns
        return self

    @property
    def frame(self):
        return pd.DataFrame(self.columns)


def names(text):
    return text.split()


def exactly(*names):
    """Return features without errors."""
    return {name: [] for name in names}


def csv(frame, path, above="", **options):
    text = frame.to_csv(index=False, **options)
    path.write_text(above + text)


def toi(path):
    """TESS objects of interest: comments above the header, limit flags, symmetric-error flags."""
    t = Invented().put(rowid=np.arange(N) + 1, toi=np.round(1000.01 + np.arange(N), 2)).numbers("tid")
    t.put(
        ctoi_alias=np.round(2000.01 + np.arange(N), 2),
        toipfx=np.arange(N) + 1000,
        pl_pnum=1 + np.arange(N) % 3 // 2,
        tfopwg_disp=KIND,
    )
    t.put(rastr=[f"07h{i % 60:02d}m00.00s" for i in range(N)], decstr=[f"-12d{i % 60:02d}m00.0s" for i in range(N)])
    t.value("ra", 180, 50).value("dec", 0, 30)
    for name in names("st_pmra st_pmdec pl_tranmid pl_orbper pl_trandurh pl_trandep pl_rade"):
        t.measured(name, f"{name}err1", f"{name}err2").flags(f"{name}symerr", shares=(0.02, 0.98)).flags(f"{name}lim")
    for name in names("pl_insol pl_eqt"):
        t.value(name).put(**{f"{name}{end}": np.full(N, np.nan) for end in ("err1", "err2", "symerr")}).flags(
            f"{name}lim"
        )
    for name in names("st_tmag st_dist st_teff st_logg st_rad"):
        t.measured(name, f"{name}err1", f"{name}err2").flags(f"{name}symerr", shares=(0.02, 0.98)).flags(f"{name}lim")
    t.put(toi_created="2021-10-29 12:59:15", rowupdate="2024-09-09 10:08:01")
    frame = t.frame
    frame.loc[5, ["pl_orbper", "pl_orbpererr1", "pl_orbpererr2"]] = np.nan
    above = "# This file was produced by the NASA Exoplanet Archive\n#\n# COLUMN toi: TESS Object of Interest\n#\n"
    csv(frame, path / "toi.csv", above)
    sides = {
        name: [f"{name}err1", f"{name}err2"]
        for name in names(
            "st_pmra st_pmdec pl_tranmid pl_orbper pl_trandurh pl_trandep pl_rade "
            "st_tmag st_dist st_teff st_logg st_rad"
        )
    }
    return "toi.csv", "tfopwg_disp", sides | {"pl_insol": [], "pl_eqt": [], "pl_pnum": []}


def koi(path):
    """Kepler objects of interest, the cumulative table."""
    t = Invented().put(loc_rowid=np.arange(N) + 1).numbers("kepid", low=10**7)
    t.put(
        kepoi_name=[f"K{i:05d}.01" for i in range(N)],
        kepler_name=[f"Kepler-{i} b" if i % 2 else None for i in range(N)],
    )
    t.put(koi_disposition=KIND, koi_pdisposition=KIND).value("koi_score", 0.5, 0.1)
    t.flags(*names("koi_fpflag_nt koi_fpflag_ss koi_fpflag_co koi_fpflag_ec"))
    measured = names("koi_period koi_time0bk koi_impact koi_duration koi_depth koi_prad")
    for name in measured:
        t.measured(name, f"{name}_err1", f"{name}_err2")
    t.value("koi_teq").put(koi_teq_err1=np.nan, koi_teq_err2=np.nan).measured(
        "koi_insol", "koi_insol_err1", "koi_insol_err2"
    )
    t.value("koi_model_snr").put(koi_tce_plnt_num=1 + EVEN, koi_tce_delivname="q1_q17_dr25_tce")
    for name in names("koi_steff koi_slogg koi_srad"):
        t.measured(name, f"{name}_err1", f"{name}_err2")
    frame = t.value("ra", 290, 5).value("dec", 45, 3).value("koi_kepmag", 14, 1).frame
    csv(frame, path / "koi.csv")
    sides = [*measured, *names("koi_insol koi_steff koi_slogg koi_srad")]
    features = {name: [f"{name}_err1", f"{name}_err2"] for name in sides}
    return "koi.csv", "koi_disposition", features | exactly(*names("koi_teq koi_model_snr koi_kepmag"))


def planets(path):
    """Planetary systems: links in cells, limits without errors."""
    t = Invented().put(pl_name=[f"HD {i} b" for i in range(N)], hostname=[f"HD {i}" for i in range(N)])
    t.put(default_flag=1, sy_snum=1 + np.arange(N) % 5 // 4, sy_pnum=1 + (np.arange(N) % 3), discoverymethod=KIND)
    t.put(
        disc_year=2000 + np.arange(N) % 20,
        disc_facility=[f"Site {i % 30}" for i in range(N)],
        soltype="Published Confirmed",
    )
    t.put(pl_controv_flag=0, pl_refname=[f"<a refstr=X_{i} href=https://x/{i}>X {i}</a>" for i in range(N)])
    measured = names("pl_orbper pl_orbsmax pl_bmasse pl_orbeccen st_teff st_mass")
    for name in measured:
        t.measured(name, f"{name}err1", f"{name}err2").flags(f"{name}lim", shares=(0.98, 0.02))
    t.put(pl_bmassprov=np.where(np.arange(N) % 3, "Mass", "Msini"), ttv_flag=EVEN * (np.arange(N) % 5 == 0))
    t.put(
        st_refname=t.columns["pl_refname"],
        sy_refname=t.columns["pl_refname"],
        rastr="1h",
        decstr="2d",
        rowupdate="2014-05-14",
    )
    frame = t.value("ra", 180, 50).value("dec", 0, 30).measured("sy_dist", "sy_disterr1", "sy_disterr2").frame
    lost = frame["pl_orbeccenlim"] == 1
    frame.loc[lost, ["pl_orbeccenerr1", "pl_orbeccenerr2"]] = np.nan
    csv(frame, path / "PS.csv", "# This file was produced by the NASA Exoplanet Archive\n")
    sides = {name: [f"{name}err1", f"{name}err2"] for name in [*measured, "sy_dist"]}
    return "PS.csv", "discoverymethod", sides | {"sy_snum": [], "sy_pnum": []}


def four_fgl(path):
    """4FGL by VizieR: tabs, comments, a line of units and one of dashes, blanks for no value."""
    t = Invented().put(recno=np.arange(N) + 1, **{"4FGL": [f"J0000.{i}-0000" for i in range(N)]})
    t.value("RAJ2000", 180, 50).value("DEJ2000", 0, 30).value("Signif").measured("F1-100", "e_F1-100")
    t.measured("E100", "e_E100").put(SpType=np.where(np.arange(N) % 3, "PowerLaw", "LogParabola"))
    t.measured("PLI", "e_PLI").value("VarInd", 20, 3).measured("FracVar", "e_FracVar").put(Class=KIND)
    t.put(Assoc=[f"PKS {i}" for i in range(N)])
    frame = t.frame.astype({"FracVar": object, "e_FracVar": object})
    frame.loc[4, ["FracVar", "e_FracVar"]] = "        "
    units = {"F1-100": "ct/cm2/s", "e_F1-100": "ct/cm2/s", "RAJ2000": "deg", "DEJ2000": "deg"}
    lines = [
        "\t".join(frame.columns),
        "\t".join(units.get(name, "") for name in frame),
        "\t".join("-" * 8 for _ in frame),
    ]
    rows = ["\t".join(map(str, row)) for row in frame.itertuples(index=False)]
    (path / "4fgl.tsv").write_text(
        "\n".join(["#", "#   VizieR Astronomical Server", "#Name: J/ApJS/247/33/4fgl", "", *lines, *rows, ""])
    )
    bars = {name: [f"e_{name}"] for name in ("F1-100", "E100", "PLI", "FracVar")}
    return "4fgl.tsv", "Class", bars | {"Signif": [], "VarInd": [], "SpType=PowerLaw": []}


def sloan_columns():
    t = Invented().numbers("objID", low=1237645942904389632).value("ra", 180, 50).value("dec", 0, 30)
    for band in "ugriz":
        t.measured(f"psfMag_{band}", f"psfMagErr_{band}", level=19)
    t.put(run=752 + np.arange(N) % 9, rerun=301, camcol=1 + np.arange(N) % 6, field=100 + np.arange(N) % 50)
    t.numbers("specObjID", low=299489676975171584).put(**{"class": KIND}).value("z", 0.5, 0.1).error("zErr", 0.0001)
    t.flags("zWarning").put(
        plate=266 + np.arange(N) % 40, mjd=51602 + np.arange(N) % 300, fiberID=1 + np.arange(N) % 640
    )
    return t.frame


SLOAN = {f"psfMag_{band}": [f"psfMagErr_{band}"] for band in "ugriz"} | {"z": ["zErr"]}


def sloan_fits(path):
    table = pytest.importorskip("astropy.table")
    table.Table.from_pandas(sloan_columns()).write(path / "sdss.fits")
    return "sdss.fits", "class", SLOAN


def sloan_votable(path):
    table = pytest.importorskip("astropy.table")
    table.Table.from_pandas(sloan_columns()).write(path / "sdss.vot", format="votable")
    return "sdss.vot", "class", SLOAN


def gaia(path):
    """Gaia DR3: correlations of ten pairs, flux over error, counts of observations."""
    t = Invented().numbers("solution_id", "source_id", "random_index", low=10**18)
    t.columns["solution_id"] = np.full(N, 1636148068921376768)
    t.put(designation=[f"Gaia DR3 {i}" for i in range(N)], ref_epoch=2016.0)
    five = names("ra dec parallax pmra pmdec")
    for name in five:
        t.measured(name, f"{name}_error", level=30 if name in ("ra", "dec") else 5)
    t.value("parallax_over_error", 20, 3).value("pm", 9, 1)
    pairs = [(a, b) for i, a in enumerate(five) for b in five[i + 1 :]]
    t.put(**{f"{a}_{b}_corr": np.round(t.rng.uniform(-0.5, 0.5, N), 3) for a, b in pairs})
    t.value("ruwe", 1, 0.1).put(duplicated_source=np.arange(N) % 60 == 0)
    for band in ("g", "bp", "rp"):
        t.put(**{f"phot_{band}_n_obs": t.rng.integers(100, 300, N)})
        t.measured(f"phot_{band}_mean_flux", f"phot_{band}_mean_flux_error", level=900, spread=90)
        t.value(f"phot_{band}_mean_flux_over_error", 50, 9).value(f"phot_{band}_mean_mag", 15, 1)
    t.value("bp_rp", 1, 0.2).put(
        phot_variable_flag=np.where(np.arange(N) % 4, "NOT_AVAILABLE", "VARIABLE"), best_class_name=KIND
    )
    t.measured("radial_velocity", "radial_velocity_error", level=3)
    frame = t.frame
    frame.loc[::3, ["radial_velocity", "radial_velocity_error"]] = np.nan
    csv(frame, path / "gaia.csv", na_rep="null")
    bars = {
        name: [f"{name}_error"]
        for name in (
            "parallax",
            "pmra",
            "pmdec",
            "radial_velocity",
            *(f"phot_{band}_mean_flux" for band in ("g", "bp", "rp")),
        )
    }
    exact = [
        "pm",
        "ruwe",
        "bp_rp",
        "duplicated_source",
        *(f"phot_{b}_{end}" for b in ("g", "bp", "rp") for end in ("n_obs", "mean_mag")),
    ]
    return "gaia.csv", "best_class_name", bars | exactly(*exact)


def allwise(path):
    """AllWISE with 2MASS: a magnitude limit has no error, and nulls are words."""
    t = Invented().put(designation=[f"J00{i:04d}.10+410000.1" for i in range(N)]).value("ra", 10, 1).value("dec", 41, 1)
    t.error("sigra", 0.05).error("sigdec", 0.05).error("sigradec", 0.01)
    for band in (1, 2, 3, 4):
        t.measured(f"w{band}mpro", f"w{band}sigmpro", level=12).value(f"w{band}snr", 30, 5).value(
            f"w{band}rchi2", 1, 0.1
        )
    t.put(
        cc_flags="0000", ext_flg=0, var_flg=[f"{i % 9}{i % 7}nn" for i in range(N)], ph_qual=["AAAU", "AABU"] * (N // 2)
    )
    t.numbers("tmass_key", low=10**9).value("r_2mass", 0.1, 0.01).value("pa_2mass", 100, 50).put(n_2mass=1)
    for band in "jhk":
        t.measured(f"{band}_m_2mass", f"{band}_msig_2mass", level=13)
    frame = t.put(type=KIND).frame
    frame["w4sigmpro"] = frame["w4sigmpro"].where(np.arange(N) % 5 > 0)
    csv(frame, path / "wise.csv", na_rep="null")
    bars = {f"w{band}mpro": [f"w{band}sigmpro"] for band in (1, 2, 3, 4)}
    return "wise.csv", "type", bars | {f"{band}_m_2mass": [f"{band}_msig_2mass"] for band in "jhk"}


def chandra(path):
    """Chandra's master sources: ends of 68 % intervals in five bands, true and false, error ellipses."""
    t = Invented().put(name=[f"2CXO J{i:06d}.1-000000" for i in range(N)]).value("ra", 180, 50).value("dec", 0, 30)
    t.error("err_ellipse_r0", 0.5).error("err_ellipse_r1", 0.4).value("err_ellipse_ang", 90, 20).value(
        "significance", 10, 2
    )
    t.put(likelihood_class=np.where(np.arange(N) % 3, "TRUE", "MARGINAL"))
    for name in names("conf_flag extent_flag sat_src_flag streak_src_flag var_flag pileup_flag"):
        t.put(**{name: t.rng.choice(["TRUE", "FALSE"], N)})
    for band in "bhms":
        value = np.abs(t.rng.standard_normal(N)) + 1 + EVEN
        t.put(
            **{
                f"flux_aper_{band}": value,
                f"flux_aper_lolim_{band}": value - 0.2,
                f"flux_aper_hilim_{band}": value + 0.3,
            }
        )
    value = t.rng.uniform(-0.5, 0.5, N)
    t.put(hard_hm=value, hard_hm_lolim=value - 0.1, hard_hm_hilim=value + 0.1, var_inter_index=t.rng.integers(0, 9, N))
    csv(t.put(Class=KIND).frame, path / "csc.csv", "#Chandra Source Catalog 2.1\n")
    bars = {f"flux_aper_{b}": [f"flux_aper_hilim_{b}", f"flux_aper_lolim_{b}"] for b in "bhms"}
    return (
        "csc.csv",
        "Class",
        bars
        | {
            "hard_hm": ["hard_hm_hilim", "hard_hm_lolim"],
            "significance": [],
            "var_inter_index": [],
            "likelihood_class=TRUE": [],
        },
    )


def acs(path):
    """American Community Survey by its API: margins of 90 %, annotations, negative codes and ** for no estimate."""
    t = Invented().put(GEO_ID=[f"0500000US{1000 + i}" for i in range(N)], NAME=[f"County {i}, Ohio" for i in range(N)])
    for name in ("B19013_001", "B25077_001", "DP03_0128P"):
        t.value(f"{name}E", 50_000, 5_000).error(f"{name}M", 800)
        t.put(**{f"{name}EA": None, f"{name}MA": None})
    frame = t.put(state=39, county=np.arange(N) + 1, metro=KIND).frame
    frame.loc[7, ["B25077_001E", "B25077_001M"]] = -666666666, -222222222
    frame.loc[[9, 31], ["B25077_001E", "B25077_001M"]] = -666666666, -222222222
    frame["DP03_0128PM"] = frame["DP03_0128PM"].astype(object)
    frame.loc[[3, 40], "DP03_0128PM"] = "**"
    csv(frame, path / "acs.csv")
    return "acs.csv", "metro", {f"{name}E": [f"{name}M"] for name in ("B19013_001", "B25077_001", "DP03_0128P")}


def county(path):
    """A county's survey in Excel: a title above the header, margins, a percentage and a code book's 99 and -9."""
    pytest.importorskip("openpyxl")
    t = Invented().put(**{"Respondent ID": np.arange(N) + 1})
    t.measured("Median income ($)", "Median income MOE", level=50_000, spread=3_000).measured(
        "Rent", "Rent ±", level=900
    )
    t.measured("Age", level=45, spread=6).put(
        Tenure=np.where(np.arange(N) % 3, "own", "rent"), Weight=1.5, Outcome=KIND
    )
    frame = t.frame
    frame.loc[[2, 9, 30], "Rent"] = -9999.0
    frame.to_excel(path / "county.xlsx", index=False, startrow=2)
    return (
        "county.xlsx",
        "Outcome",
        {"Median income ($)": ["Median income MOE"], "Rent": ["Rent ±"], "Age": [], "Tenure=rent": []},
    )


def clinic(path):
    """A clinic's spreadsheet: replicates, a mean with the SD of its readings, 'ND' in cells, decimal points."""
    t = Invented().put(**{"Patient No.": np.arange(N) + 500})
    true = t.rng.standard_normal(N) * 8 + 120 + 5 * EVEN
    t.put(**{f"SBP{j}": np.round(true + t.rng.standard_normal(N) * 2, 1) for j in (1, 2, 3)})
    t.value("Glucose mean (mg/dL)", 95, 8).error("Glucose SD", 4).measured("CRP", "CRP SE", level=3).put(
        Sex=np.where(t.rng.random(N) < 0.5, "f", "m"), Diagnosis=KIND
    )
    frame = t.frame
    frame["CRP"] = frame["CRP"].astype(object)
    frame.loc[[4, 8, 15], ["CRP", "CRP SE"]] = ["ND", np.nan]
    csv(frame, path / "clinic.csv")
    bars = {"SBP": ["SBP1", "SBP2", "SBP3"], "Glucose mean (mg/dL)": ["Glucose SD"], "CRP": ["CRP SE"]}
    return "clinic.csv", "Diagnosis", bars | {"Sex=m": []}


@pytest.mark.parametrize(
    "make", [toi, koi, planets, four_fgl, sloan_fits, sloan_votable, gaia, allwise, chandra, acs, county, clinic]
)
def test_a_fit_uses_what_a_user_of_the_archive_would_use_or_says_how(tmp_path, monkeypatch, capsys, make):
    file, target, expected = make(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = main(["fit", file, "--target", target, "-o", "m", "--model", "linear", "--folds", "2"])
    told = capsys.readouterr().err
    if code == 2:
        (line,) = told.splitlines()
        assert len(line) < 1100
        command = shlex.split(line[line.index("gaussguru fit") :])
        code = main(command[1:])
        told = capsys.readouterr().err
    assert code in (0, 3), told
    layout = read_model("m").layout
    bars = {name: layout.errors[name].columns if name in layout.errors else [] for name in layout.features}
    assert bars == expected
    assert f"{len(expected)} features, " in told
