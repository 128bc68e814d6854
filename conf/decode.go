package conf

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// fault is what is wrong with the value of a key, in words that follow the key's name.
type fault struct {
	message string // `wants a number, got a string`
	hint    string
	item    int  // 1 for the first item of a list, 0 for the whole value
	warning bool // not an error
}

func (f *fault) Error() string { return f.message }

func faultf(format string, args ...any) *fault { return &fault{message: fmt.Sprintf(format, args...)} }

// hinted adds what to do instead.
func (f *fault) hinted(format string, args ...any) *fault {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

// at says which item of a list it is about, counted from 0.
func (f *fault) at(item int) *fault {
	f.item = item + 1
	return f
}

func wants(what string, value any) *fault { return faultf("wants %s, got %s", what, kindOf(value)) }

// place names where a key stands: the keys from the root, the last being the table's own.
type place []string

// String writes the key's full name: instance.kimi-int4.port.
func (p place) String() string { return toml.Key(p).String() }

// table names a table as its header does.
func (p place) table() string { return "[" + p.String() + "]" }

// in says where a key of the table stands.
func (p place) in() string {
	if len(p) == 0 {
		return "at the top level"
	}
	return "in " + p.table()
}

func (p place) key(name string) place { return append(slices.Clone(p), name) }

// decode fills a profile from the merged keys, and reports keys that do not exist and values of a wrong form.
func (l *loader) decode(root *node, p *Profile) {
	l.decodeStruct(root, reflect.ValueOf(p).Elem(), nil)
}

func (l *loader) decodeStruct(n *node, v reflect.Value, at place) {
	misnamed := false
	for _, item := range n.items {
		field, ok := fieldByKey(v, item.name)
		if !ok {
			item.bad = true
			misnamed = misnamed || dotted(item, at)
			l.unknownKey(item, v.Type(), at)
			continue
		}
		l.decodeValue(item, field, at.key(item.name))
	}
	if l.partial || misnamed {
		return
	}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if key := tag.Get("toml"); tag.Get("default") == "required" && n.child(key) == nil {
			l.onTable(n, at, missing(at, key), requiredHint(at, key))
		}
	}
}

func missing(at place, key string) string {
	if len(at) == 0 {
		return fmt.Sprintf("the profile has no %q", key)
	}
	return fmt.Sprintf("%s has no %q", at.table(), key)
}

func (l *loader) decodeValue(n *node, v reflect.Value, at place) {
	value := n.plain
	if u, ok := v.Addr().Interface().(toml.Unmarshaler); ok {
		if args, ok := u.(*Args); ok && n.kind == tableKind {
			l.decodeArgs(n, args, at)
			return
		}
		if err := u.UnmarshalTOML(value()); err != nil {
			l.wrongValue(n, at, err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if n.kind != tableKind {
			l.wrongValue(n, at, wants("a table", value()))
			return
		}
		l.decodeStruct(n, v, at)
	case reflect.Map:
		l.decodeMap(n, v, at)
	case reflect.Slice:
		l.decodeStrings(n, v, at)
	case reflect.String:
		if s, ok := n.value.(string); ok {
			v.SetString(s)
		} else {
			l.wrongValue(n, at, wantsString(value()))
		}
	case reflect.Bool:
		if b, ok := n.value.(bool); ok {
			v.SetBool(b)
		} else {
			l.wrongValue(n, at, wantsBool(value()))
		}
	case reflect.Int:
		if i, ok := n.value.(int64); ok {
			v.SetInt(i)
		} else {
			l.wrongValue(n, at, wantsWholeNumber(value()))
		}
	case reflect.Float64:
		switch x := n.value.(type) {
		case float64:
			v.SetFloat(x)
		case int64:
			v.SetFloat(float64(x))
		default:
			l.wrongValue(n, at, wantsFraction(value()))
		}
	default:
		panic(fmt.Sprintf("internal error: no way to read %v of a profile", v.Type()))
	}
}

// decodeMap reads a table whose keys are names: of tables like [instance.NAME], or of strings.
func (l *loader) decodeMap(n *node, v reflect.Value, at place) {
	tables := v.Type().Elem().Kind() == reflect.Pointer
	switch {
	case tables && n.kind == listKind:
		n.bad = true
		l.on(n.src, n.key, at, fmt.Sprintf("%q wants tables with names, got a list", n.name),
			fmt.Sprintf("write [%s.NAME] instead of [[%s]]", n.name, n.name))
		return
	case n.kind != tableKind:
		f := wants("a table", n.plain())
		switch {
		case tables:
			f.hinted("write [%s.NAME]", n.name)
		case n.name == "allow":
			f.hinted(`such as { ID = "the reason" }`)
		default:
			f.hinted(`such as { NAME = "value" }`)
		}
		l.wrongValue(n, at, f)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, item := range n.items {
		here := at.key(item.name)
		if !tables {
			if s, ok := item.value.(string); ok {
				v.SetMapIndex(reflect.ValueOf(item.name), reflect.ValueOf(s))
			} else {
				l.wrongValue(item, here, wantsString(item.plain()))
			}
			continue
		}
		if item.kind != tableKind {
			item.bad = true
			l.on(item.src, item.key, here, fmt.Sprintf("%q stands in [%s], where only tables with names do", item.name, n.name),
				fmt.Sprintf("write [%s.NAME] above it", n.name))
			continue
		}
		l.checkName(item, here)
		elem := reflect.New(v.Type().Elem().Elem())
		setDefaults(elem.Interface())
		l.decodeStruct(item, elem.Elem(), here)
		v.SetMapIndex(reflect.ValueOf(item.name), elem)
	}
}

func (l *loader) decodeStrings(n *node, v reflect.Value, at place) {
	if n.kind != listKind {
		f := wants("a list of strings", n.plain())
		if s, ok := n.value.(string); ok {
			f.hinted("write [%s]", quote(s))
		}
		l.wrongValue(n, at, f)
		return
	}
	list := make([]string, len(n.items))
	for i, item := range n.items {
		s, ok := item.value.(string)
		if !ok {
			l.wrongValue(n, at, wants("strings in its list", item.plain()).at(i))
		}
		list[i] = s
	}
	v.Set(reflect.ValueOf(list))
}

func wantsString(value any) *fault {
	f := wants("a string", value)
	switch value.(type) {
	case int64, float64, bool:
		f.hinted("put it in quotes")
	}
	return f
}

func wantsWholeNumber(value any) *fault {
	f := wants("a number", value)
	switch v := value.(type) {
	case float64:
		f.message = "wants a whole number"
		if v == math.Trunc(v) && math.Abs(v) < 1e9 {
			f.hinted("write %.0f", v)
		}
	case string:
		if isDigits(v) {
			f.hinted("write it without quotes")
		}
	}
	return f
}

func wantsFraction(value any) *fault {
	f := wants("a number", value)
	s, _ := value.(string)
	var p Percent
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		f.hinted("write it without quotes")
	} else if p.UnmarshalTOML(s) == nil {
		f.hinted("write %v", float64(p))
	}
	return f
}

func wantsBool(value any) *fault {
	f := wants("true or false", value)
	switch value {
	case "true", "yes", "on", int64(1):
		f.hinted("write true")
	case "false", "no", "off", int64(0):
		f.hinted("write false")
	}
	return f
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// fieldByKey returns the field of a struct that a key of the profile is for.
func fieldByKey(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if tag := v.Type().Field(i).Tag.Get("toml"); tag == key && tag != "-" {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// keysOf lists the keys of a table of the profile.
func keysOf(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("toml"); tag != "-" {
			keys = append(keys, tag)
		}
	}
	return keys
}
