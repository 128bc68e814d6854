package conf

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
)

// Duration is a length of time, written with a unit: "90s", "15min", "2h", "1h 30min". Never negative. The units are
// those of systemd.time(7), from "us" to "weeks".
type Duration time.Duration

// Size is a number of bytes, written with a unit: "50GB" (powers of 1000) or "46GiB" (powers of 1024).
type Size int64

// unit is a word for a number of nanoseconds or bytes.
type unit struct {
	words string // separated by spaces, the first being the one we write
	value int64
}

func timeUnits() []unit {
	return []unit{
		{"w week weeks", int64(7 * 24 * time.Hour)},
		{"d day days", int64(24 * time.Hour)},
		{"h hr hour hours", int64(time.Hour)},
		{"min m minute minutes", int64(time.Minute)},
		{"s sec second seconds", int64(time.Second)},
		{"ms msec", int64(time.Millisecond)},
		{"us µs usec", int64(time.Microsecond)},
	}
}

func sizeUnits() []unit {
	return []unit{
		{"PiB", 1 << 50}, {"PB", 1e15}, {"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
		{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB KB", 1e3}, {"B", 1},
	}
}

// unitValue returns the size of the unit with that word, or 0.
func unitValue(units []unit, word string) int64 {
	for _, u := range units {
		for _, w := range strings.Fields(u.words) {
			if w == word {
				return u.value
			}
		}
	}
	return 0
}

var (
	quantityForm = lazily(`^([0-9]{1,20}(?:\.[0-9]{1,20})?)[ \t]*(\p{L}*)$`)
	// One number with its unit, and what follows.
	durationForm = lazily(`^([0-9]{1,20}(?:\.[0-9]{1,20})?)[ \t]*(\p{L}*)[ \t]*(.*)$`)
)

// times multiplies a decimal number by a unit. It fails where the product is not whole or too large.
func times(number string, by int64) (int64, bool) {
	x, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, false
	}
	x.Mul(x, new(big.Rat).SetInt64(by))
	if !x.IsInt() || !x.Num().IsInt64() {
		return 0, false
	}
	return x.Num().Int64(), true
}

// UnmarshalTOML reads a string such as "90s", "15min" or "1h 30min".
func (d *Duration) UnmarshalTOML(value any) error {
	s, ok := value.(string)
	switch value.(type) {
	case int64, float64:
		return wants("a duration", value).hinted(`write "%vs"`, value)
	}
	if !ok {
		return wants("a duration", value).hinted(`such as "90s", "15min" or "2h"`)
	}
	return d.UnmarshalText([]byte(s))
}

// UnmarshalText reads what UnmarshalTOML reads.
func (d *Duration) UnmarshalText(text []byte) error {
	rest := strings.TrimSpace(string(text))
	if rest == "infinity" {
		return faultf("must end: everything here has a deadline")
	}
	var sum int64
	for first := true; first || rest != ""; first = false {
		m := durationForm().FindStringSubmatch(rest)
		if m == nil {
			return faultf("wants a duration, got %s", quote(string(text))).hinted(`such as "90s", "15min" or "2h"`)
		}
		if m[2] == "" {
			return faultf("has no unit: %s", quote(string(text))).hinted(`write "%ss"?`, m[1])
		}
		by := unitValue(timeUnits(), m[2])
		if by == 0 {
			return faultf("has an unknown unit: %s", quote(m[2])).hinted("units: us, ms, s, min, h, d, w")
		}
		n, ok := times(m[1], by)
		if !ok || n > math.MaxInt64-sum {
			return faultf("is too long or too fine: %s", quote(string(text)))
		}
		sum += n
		rest = m[3]
	}
	if sum%int64(time.Microsecond) != 0 {
		return faultf("is too long or too fine: %s", quote(string(text)))
	}
	*d = Duration(sum)
	return nil
}

// String writes it as a profile does, and as systemd reads it: "15min", "1min 30s".
func (d Duration) String() string {
	rest := int64(d)
	var parts []string
	for _, u := range timeUnits() {
		if n := rest / u.value; n > 0 {
			parts = append(parts, fmt.Sprintf("%d%s", n, strings.Fields(u.words)[0]))
			rest -= n * u.value
		}
	}
	if len(parts) == 0 {
		return "0s"
	}
	return strings.Join(parts, " ")
}

// UnmarshalTOML reads a string such as "50GB" or "46GiB".
func (s *Size) UnmarshalTOML(value any) error {
	text, ok := value.(string)
	switch value.(type) {
	case int64, float64:
		return wants("a size", value).hinted(`write "%vGB", "%vGiB" or "%vB"`, value, value, value)
	}
	if !ok {
		return wants("a size", value).hinted(`such as "50GB" or "46GiB"`)
	}
	return s.UnmarshalText([]byte(text))
}

// UnmarshalText reads what UnmarshalTOML reads.
func (s *Size) UnmarshalText(text []byte) error {
	m := quantityForm().FindStringSubmatch(strings.TrimSpace(string(text)))
	if m == nil {
		return faultf("wants a size, got %s", quote(string(text))).hinted(`such as "50GB" or "46GiB"`)
	}
	number, word := m[1], m[2]
	by := unitValue(sizeUnits(), word)
	switch {
	case word == "":
		return faultf("has no unit: %s", quote(string(text))).hinted(`write "%sGB" or "%sB"?`, number, number)
	case by == 0 && len(word) == 1 && strings.Contains("KMGTPkmgtp", word):
		w := strings.ToUpper(word)
		return faultf("has an ambiguous unit: %s", quote(word)).
			hinted(`"%[1]s%[2]sB" (powers of 1000) or "%[1]s%[2]siB" (powers of 1024)`, number, w)
	case by == 0:
		return faultf("has an unknown unit: %s", quote(word)).hinted("units: B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB")
	}
	n, ok := times(number, by)
	if !ok {
		return faultf("is no whole number of bytes, or too large: %s", quote(string(text)))
	}
	*s = Size(n)
	return nil
}

// String writes it as a profile does, exactly, in the unit that needs the smallest number: "50GB", "46GiB".
func (s Size) String() string {
	best := unit{"B", 1}
	for _, u := range sizeUnits() {
		if s != 0 && int64(s)%u.value == 0 && u.value > best.value {
			best = u
		}
	}
	return fmt.Sprintf("%d%s", int64(s)/best.value, strings.Fields(best.words)[0])
}
