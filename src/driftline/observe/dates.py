"""placeholder patterns, to be replaced"""
_D = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_T = r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
DATE_PATTERN = _D
TIMESTAMP_PATTERN = _D + _T + r"(Z|\+00:00)"
TIMESTAMP_NTZ_PATTERN = _D + _T
OFFSET_PATTERN = _D + _T + r"(Z|[+-][0-9]{2}:[0-9]{2})"
