"""Tables that are refused: by those who read them, and by the command line."""

import gzip

CSV = "a,b,y\n1,-2.5,yes\n0.25,1e-3,no\n3,4,yes\n"
WITH_ERRORS = "a,a_err,b,y\n1,0.5,2,0\n3,{},5,1\n{},0.1,7,1\n"
BAD = {
    "empty": ("", ["empty", "header"], {}),
    "blank": ("\n \n", ["empty"], {}),
    "header-only": ("a,b,y\n", ["no rows"], {}),
    "header-without-newline": ("a,b,y", ["no rows"], {}),
    "twice": ("a,a,y\n1,2,x\n", ["'a' more than once"], {}),
    "text": (CSV.replace("0.25", "quarter"), ["'a'", "'quarter'", "row 2", "--drop"], {}),
    "text-later": ("\n\n" + CSV.replace("4", "four"), ["'b'", "'four'", "row 3"], {}),
    "infinite": (CSV.replace("0.25", "-inf"), ["'a'", "-inf", "row 2"], {}),
    "huge": (CSV.replace("1e-3", "1e151"), ["'b'", "1e+151", "row 2"], {}),
    "short-row": (CSV + "1,2\n", ["row 4", "2 fields", "header 3"], {}),
    "long-row": (CSV + "1,2,yes,4\n", ["row 4", "4 fields", "header 3"], {}),
    "two-encodings": (CSV.encode() + "1,2,né\n".encode() + "1,2,né\n".encode("latin1"), ["UTF-8", "0xe9"], {}),
    "no-encoding": (CSV.encode() + b"1,2,n\x81\n", ["UTF-8", "Windows-1252", "0x81"], {}),
    "half-utf16": (CSV.encode("utf16") + b"1", ["UTF-16"], {}),
    "no-parquet": (b"PAR1 and no more", ["Parquet"], {}),
    "broken-gzip": (gzip.compress(CSV.encode() * 9999)[:60], ["cannot be read"], {}),
    "missing": (CSV.replace("0.25", "").replace("4", "NA"), ["3 rows", "1 in 'a', 1 in 'b'", "--missing"], {}),
    "nothing-left": ("a,b,y\n,1,0\n2,,1\n", ["none of 2 rows"], {"missing": "drop"}),
    "no-label": (CSV.replace("no", ""), ["no label in 1 of 3 rows", "row 2", "'y'"], {}),
    "no-labels": (CSV.replace("no", "NULL").replace("yes", " n/a "), ["no label in 3 of 3 rows"], {}),
    "near": (CSV, ["'Y'", "did you mean 'y'"], {"target": "Y"}),
    "far": (CSV, ["'class'", "a, b, y"], {"target": "class"}),
    "no-target": (CSV, ["--target"], {"target": None}),
    "drop-unknown": (CSV, ["'c'", "--drop"], {"drop": ["c"]}),
    "feature-unknown": (CSV, ["'c'", "--features"], {"features": ["c"]}),
    "feature-dropped": (CSV, ["'a'", "--features", "--drop"], {"features": ["a", "b"], "drop": ["a"]}),
    "feature-target": (CSV, ["'y'", "target"], {"features": ["y"]}),
    "nothing-to-use": (CSV, ["no column for a feature"], {"drop": ["a", "b"]}),
    "errors-alone": ("a,b_err,y\n1,2,0\n", ["'b_err'", "'b'", "--drop"], {}),
    "errors-of-target": ("a,y_err,y\n1,2,0\n", ["'y_err'", "'y'", "--drop"], {}),
    "negative-error": (WITH_ERRORS.format("-0.1", 1), ["'a_err'", "-0.1", "row 2"], {}),
    "no-error": (WITH_ERRORS.format("", 1), ["'a_err'", "no error in 1 of", "--missing-error"], {}),
    "mean-with-errors": (WITH_ERRORS.format(1, 1), ["unmeasured"], {"missing": "mean"}),
    "refused-with-errors": (WITH_ERRORS.format(1, ""), ["1 in 'a'"], {"missing": "error"}),
    "no-such-pattern": (CSV, ["{x}_sd"], {"err_pattern": ["{x}_sd"]}),
    "no-pattern": (CSV, ["{x} once", "'_sd'"], {"err_pattern": ["_sd"]}),
}  # fmt: skip
