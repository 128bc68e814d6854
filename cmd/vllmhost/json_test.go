package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"vllmhost/hostctl"
)

// What --json prints is a promise: docs/reference/json.md has every field.
func TestJSONIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/json.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")
	for schema, report := range map[string]reflect.Type{
		"vllmhost/check/v1":         reflect.TypeFor[checkReport](),
		"vllmhost/apply/v1":         reflect.TypeFor[appliedReport](),
		"vllmhost/status/v1":        reflect.TypeFor[statusReport](),
		"vllmhost/swap/v1":          reflect.TypeFor[swapReport](),
		"vllmhost/history/v1":       reflect.TypeFor[historyReport](),
		"vllmhost/clean/v1":         reflect.TypeFor[cleanReport](),
		"vllmhost/models-verify/v1": reflect.TypeFor[hostctl.VerifyReport](),
	} {
		section := ""
		for _, s := range sections {
			if strings.HasPrefix(s, schema+"\n") {
				section = s
			}
		}
		for _, field := range fields(report) {
			if field != "schema" && !strings.Contains(section, "`"+field+"`") {
				t.Errorf("%s: the field %q is not described", schema, field)
			}
		}
	}
}

// fields lists the names of a type's JSON fields, those of nested types too.
func fields(t reflect.Type) []string {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() == "time" {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
		if name != "-" {
			names = append(names, fields(f.Type)...)
		}
	}
	return names
}
