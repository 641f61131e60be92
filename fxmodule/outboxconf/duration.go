package outboxconf

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// days is a number of days, 7d, or an ISO 8601 duration such as P7D, PT5M or
// P1DT12H. Years, months and weeks are not supported.
var days = regexp.MustCompile(`^(?:P?(\d{1,5})[dD])?(?:PT|T)?([\d.HMS]*)$`)

// parseDuration reads Go's form, ISO 8601's, and a number of days. A module for ISO 8601
// would not read 7d, and would take a year or a month, whose length varies, for an average.
func parseDuration(text string) (time.Duration, string) {
	d, err := time.ParseDuration(text)
	if iso := days.FindStringSubmatch(text); err != nil && iso != nil {
		n, _ := strconv.Atoi(iso[1]) // empty is 0
		d, err = time.ParseDuration(fmt.Sprintf("%dh%s", n*24, strings.ToLower(iso[2])))
	}
	if err == nil {
		return d, ""
	}
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		unit := "s"
		if n >= 1000 {
			unit = "ms"
		}
		return 0, fmt.Sprintf("is %d, which has no unit; did you mean %d%s?", n, n, unit)
	}
	return 0, fmt.Sprintf("is %.40q, which is not a duration; write it as 5s, 200ms, 168h, 7d or PT5M", text)
}
