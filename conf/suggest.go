package conf

import (
	"fmt"
	"slices"
	"strings"
)

// Suggest returns the known name that a wrong one was probably meant to be, or "". It compares without regard to
// case and to the difference between "-" and "_".
func Suggest(name string, known []string) string {
	const longest = 64 // of any name that could be meant
	if len(name) > longest {
		return ""
	}
	fold := strings.NewReplacer("_", "-").Replace
	name = fold(strings.ToLower(name))
	best, bestDistance := "", 0
	for _, k := range slices.Sorted(slices.Values(known)) {
		d := distance(name, fold(strings.ToLower(k)))
		if d > 1+min(len(name), len(k))/5 || d >= min(len(name), len(k)) {
			continue
		}
		if best == "" || d < bestDistance {
			best, bestDistance = k, d
		}
	}
	if best == "" {
		return completion(name, known)
	}
	return best
}

// completion returns the only known name that begins with the given one, or "".
func completion(name string, known []string) (full string) {
	const shortest = 3
	for _, k := range known {
		switch {
		case len(name) < shortest || !strings.HasPrefix(strings.ReplaceAll(k, "_", "-"), name):
		case full != "":
			return ""
		default:
			full = k
		}
	}
	return full
}

// didYouMean is a hint with Suggest's answer, or else the given words.
func didYouMean(name string, known []string, otherwise string) string {
	if s := Suggest(name, known); s != "" {
		return fmt.Sprintf("did you mean %q?", s)
	}
	return otherwise
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between two texts (the "optimal
// string alignment" distance).
func distance(a, b string) int {
	previous, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before := previous
		previous, row = row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(previous[j]+1, row[j-1]+1, previous[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
