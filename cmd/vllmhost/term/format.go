package term

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Duration returns d as people read it, in at most two units: 0.4s, 48s, 3m12s, 3h12m, 2d03h. A negative duration, which
// only a clock that was set back can cause, is 0.0s.
func Duration(d time.Duration) string {
	d = max(d, 0)
	if tenths := d.Round(100 * time.Millisecond); tenths < 10*time.Second {
		return fmt.Sprintf("%.1fs", tenths.Seconds())
	}
	d = d.Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// Size returns a number of bytes on a disk in decimal units, as disks are sold and the Hub counts: 595 GB, 1.7 TB.
func Size(bytes int64) string {
	return scaled(bytes, 1000, []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"})
}

// Memory returns a number of bytes of RAM or GPU memory in binary units, as nvidia-smi and vLLM count: 41 GiB.
func Memory(bytes int64) string {
	return scaled(bytes, 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"})
}

// scaled shows one decimal below 10 and none from there on: two or more digits that mean something.
func scaled(bytes int64, base float64, units []string) string {
	n, unit := float64(bytes), 0
	for math.Abs(math.Round(n)) >= base && unit < len(units)-1 {
		n /= base
		unit++
	}
	if unit > 0 && math.Abs(n) < 9.95 {
		return fmt.Sprintf("%.1f %s", n, units[unit])
	}
	return fmt.Sprintf("%.0f %s", n, units[unit])
}

// Count returns n with its thousands separated: 1,073,741,824.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(digits) - 3; i > first; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Rate returns tokens per second: 82.1 tok/s, 2,276 tok/s.
func Rate(tokensPerSecond float64) string {
	if math.Abs(tokensPerSecond) < 99.95 {
		return fmt.Sprintf("%.1f tok/s", tokensPerSecond)
	}
	return Count(int64(math.Round(tokensPerSecond))) + " tok/s"
}

// Percent returns a fraction as a signed percentage, for comparisons: +1.1 %, -12.0 %.
func Percent(fraction float64) string {
	return fmt.Sprintf("%+.1f %%", 100*fraction)
}
