package unitgen

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// full returns a Section without a zero field, so that nothing can be forgotten in a round trip.
func full(t *testing.T) Section {
	t.Helper()
	var s Section
	fields := reflect.ValueOf(&s).Elem()
	for i := range fields.NumField() {
		switch p := fields.Field(i).Addr().Interface().(type) {
		case *string:
			*p = "a 50% \"quoted\" \\ value"
		case *[]string:
			*p = []string{"plain", "two words", "100%"}
		case *bool:
			*p = true
		case *int:
			*p = 7
		case *float64:
			*p = 0.95
		case *time.Duration:
			*p = 90 * time.Second
		default:
			t.Fatalf("this test knows no %T", p)
		}
	}
	return s
}

func TestSectionReadsBackWhatItWrites(t *testing.T) {
	want := full(t)
	w := &writer{}
	want.write(w)
	got, err := ParseSection(Seal([]byte(w.b.String())))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a section written and read differs (-written +read):\n%s", diff)
	}
}

func TestParseSection(t *testing.T) {
	for _, tt := range []struct{ name, text, wantErr string }{
		{"somebody else's unit", "[Service]\nExecStart=/bin/true\n", ErrNotOurs.Error()},
		{"empty file", "", ErrNotOurs.Error()},
		{"no instance", "[X-Vllmhost]\nFormat=1\n", "Instance= is missing"},
		{"no format", "[X-Vllmhost]\nInstance=a\n", "Format="},
		{"bad number", "[X-Vllmhost]\nFormat=1\nInstance=a\nPort=http\n", "cannot read Port=http"},
		{"bad duration", "[X-Vllmhost]\nFormat=1\nInstance=a\nDrainTimeout=30\n", "cannot read DrainTimeout=30"},
		{"a newer program's", "[X-Vllmhost]\nFormat=9\nInstance=a\nNovelty=x y\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseSection([]byte(tt.text))
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
	if _, err := ParseSection([]byte("[Unit]\n")); !errors.Is(err, ErrNotOurs) {
		t.Errorf("a unit without the section gives %v, want ErrNotOurs", err)
	}
}

func TestEdited(t *testing.T) {
	whole := string(Seal([]byte("[Service]\nExecStart=/bin/true\n")))
	for _, tt := range []struct {
		name, text string
		want       bool
	}{
		{"as written", whole, false},
		{"a changed line", strings.Replace(whole, "true", "false", 1), true},
		{"a line more at the end", whole + "Nice=5\n", true},
		{"a comment more at the start", "# mine\n" + whole, true},
		{"the hash gone", "[Service]\nExecStart=/bin/true\n", true},
		{"the last newline gone", strings.TrimSuffix(whole, "\n"), true},
		{"empty", "", true},
	} {
		if got := Edited([]byte(tt.text)); got != tt.want {
			t.Errorf("%s: Edited = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The section is a format that others may read: docs/reference/unit.md describes every key.
func TestSectionIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/unit.md")
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[Section]().NumField() {
		key := reflect.TypeFor[Section]().Field(field).Tag.Get("unit")
		if !strings.Contains(string(page), "| `"+key+"` |") {
			t.Errorf("docs/reference/unit.md does not describe %s=", key)
		}
	}
}
