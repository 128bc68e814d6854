package conf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GPUs says which GPUs an instance uses. The zero value uses none.
type GPUs struct {
	All     bool     // every GPU of the host
	Indices []int    // in PCI bus order, ascending, without repeats
	UUIDs   []string // "GPU-...", as nvidia-smi -L prints them, in lower case
}

var (
	uuidForm = lazily(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	listForm = lazily(`^[0-9]+(,[0-9]+)*$`)
	spanForm = lazily(`^([0-9]{1,2})-([0-9]{1,2})$`)
)

// UnmarshalTOML reads "all", a list of indices such as [0, 1], or a list of UUIDs.
func (g *GPUs) UnmarshalTOML(value any) error {
	const what = `"all" or a list of GPUs`
	switch v := value.(type) {
	case string:
		if v == "all" {
			*g = GPUs{All: true}
			return nil
		}
		return faultf("wants %s, got %s", what, quote(v)).hinted("%s", listHint(v))
	case int64:
		return wants(what, value).hinted("[%d] is the GPU with that index", v)
	case []any:
		return g.unmarshalList(v)
	}
	return wants(what, value)
}

// listHint says how to write a list that was written as a string.
func listHint(text string) string {
	text = strings.ReplaceAll(text, " ", "")
	if m := spanForm().FindStringSubmatch(text); m != nil {
		first, _ := strconv.Atoi(m[1])
		last, _ := strconv.Atoi(m[2])
		var list []string
		for i := first; i <= last; i++ {
			list = append(list, strconv.Itoa(i))
		}
		text = strings.Join(list, ",")
	}
	switch {
	case listForm().MatchString(text):
		return fmt.Sprintf("write [%s]", strings.ReplaceAll(text, ",", ", "))
	case text == "none" || text == "":
		return "write []"
	}
	return ""
}

func (g *GPUs) unmarshalList(list []any) error {
	*g = GPUs{}
	for i, item := range list {
		switch v := item.(type) {
		case int64:
			if v < 0 || v >= maxGPUs {
				return faultf("has no GPU %d", v).hinted("indices begin at 0").at(i)
			}
			if slices.Contains(g.Indices, int(v)) {
				return faultf("names GPU %d twice", v).at(i)
			}
			g.Indices = append(g.Indices, int(v))
		case string:
			uuid := "GPU-" + strings.ToLower(strings.TrimPrefix(v, "GPU-"))
			switch {
			case isDigits(v):
				return faultf("names a GPU by %s", quote(v)).hinted("write an index without quotes").at(i)
			case strings.HasPrefix(v, "MIG-"):
				return faultf("names a MIG device, which cannot be used").hinted("whole GPUs only").at(i)
			case !strings.HasPrefix(v, "GPU-") || !uuidForm().MatchString(uuid):
				return faultf("has no UUID in %s", quote(v)).
					hinted("GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx; nvidia-smi -L lists them").at(i)
			case slices.Contains(g.UUIDs, uuid):
				return faultf("names this GPU twice").at(i)
			}
			g.UUIDs = append(g.UUIDs, uuid)
		default:
			return wants("indices or UUIDs in its list", item).at(i)
		}
		if len(g.Indices) > 0 && len(g.UUIDs) > 0 {
			return faultf("mixes indices and UUIDs").hinted("name all by the one or all by the other").at(i)
		}
	}
	slices.Sort(g.Indices)
	return nil
}

// Any reports whether it uses a GPU at all.
func (g GPUs) Any() bool { return g.All || g.Count() > 0 }

// Count returns the number of GPUs that are listed; 0 for "all".
func (g GPUs) Count() int { return len(g.Indices) + len(g.UUIDs) }

// Overlaps reports whether both use a GPU that is the same, or may be: which UUID an index has is known on the host
// only.
func (g GPUs) Overlaps(other GPUs) bool { return g.shared(other).Any() }

// shared returns the GPUs that are in both, as far as a profile can tell.
func (g GPUs) shared(other GPUs) GPUs {
	switch {
	case !g.Any() || !other.Any():
		return GPUs{}
	case g.All:
		return other
	case other.All:
		return g
	case len(g.Indices) > 0 != (len(other.Indices) > 0):
		return g
	}
	return GPUs{Indices: common(g.Indices, other.Indices), UUIDs: common(g.UUIDs, other.UUIDs)}
}

func common[T comparable](a, b []T) (both []T) {
	for _, x := range a {
		if slices.Contains(b, x) {
			both = append(both, x)
		}
	}
	return both
}

// String names them for people: "all", "0-7", "0,2-3", UUIDs joined by commas, or "none".
func (g GPUs) String() string {
	switch {
	case g.All:
		return "all"
	case len(g.UUIDs) > 0:
		return strings.Join(g.UUIDs, ",")
	case len(g.Indices) == 0:
		return "none"
	}
	var parts []string
	for i := 0; i < len(g.Indices); {
		j := i
		for j+1 < len(g.Indices) && g.Indices[j+1] == g.Indices[j]+1 {
			j++
		}
		part := strconv.Itoa(g.Indices[i])
		if j > i {
			part = fmt.Sprintf("%d-%d", g.Indices[i], g.Indices[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
