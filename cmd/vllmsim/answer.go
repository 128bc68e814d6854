package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	countPattern   = regexp.MustCompile(`(\d{1,9}), ?(\d{1,9}), ?(\d{1,9}),\s*$`)
	productPattern = regexp.MustCompile(`(\d{1,6}) ?[*x×] ?(\d{1,6})`)
	asksPattern    = regexp.MustCompile(`(:|=|->|=>| is)$`)
	sayPattern     = regexp.MustCompile(`(?i)reply with the word "?(\w+)`)
)

// answerTo knows the few things that a probe asks of a model to see whether it thinks at all. A positive number is where
// a count goes on; a text is a whole answer; neither means that the prompt is just something to write on about.
func answerTo(prompt string) (text string, count int) {
	if m := countPattern.FindStringSubmatch(prompt); m != nil {
		a, _ := strconv.Atoi(m[1])
		b, _ := strconv.Atoi(m[2])
		c, _ := strconv.Atoi(m[3])
		if b == a+1 && c == b+1 {
			return "", c + 1
		}
	}
	if m := sayPattern.FindStringSubmatch(prompt); m != nil {
		return m[1], 0
	}
	prompt = strings.TrimRight(prompt, " \n")
	lines := strings.Split(prompt, "\n")
	if len(lines) < 2 || !asksPattern.MatchString(prompt) {
		return "", 0
	}
	return fewShot(lines), 0
}

// fewShot continues examples. The last line, or the last two, ask for something that earlier lines show how to answer:
// "in: abc" and "out: abc" repeat, "17 * 23 =" multiplies, a country gets its capital.
func fewShot(lines []string) string {
	question, before := lines[len(lines)-1], lines[:len(lines)-1]
	for _, l := range before {
		if strings.HasPrefix(l, question) { // only a label, such as "A:"
			question = before[len(before)-1]
			break
		}
	}
	question = strings.TrimRight(question, " =:>-")
	if m := productPattern.FindStringSubmatch(question); m != nil {
		a, _ := strconv.Atoi(m[1])
		b, _ := strconv.Atoi(m[2])
		return fmt.Sprintf(" %d\n", a*b)
	}
	for country, capital := range capitals() {
		if strings.Contains(question, country) {
			return " " + capital + "\n"
		}
	}
	examples := strings.Join(before, "\n")
	words := strings.Fields(question)
	if len(words) == 0 {
		return ""
	}
	// An echo: some earlier word stands twice in the examples, the last one of the question only once so far.
	for _, w := range strings.Fields(examples) {
		if len(w) >= 4 && !strings.HasSuffix(w, ":") && strings.Count(examples, w) == 2 && w != words[len(words)-1] {
			return " " + words[len(words)-1] + "\n"
		}
	}
	return ""
}

func capitals() map[string]string {
	return map[string]string{
		"France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Norway": "Oslo",
		"Austria": "Vienna", "Poland": "Warsaw", "Portugal": "Lisbon", "Greece": "Athens", "Egypt": "Cairo", "Canada": "Ottawa",
		"Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Ireland": "Dublin", "Hungary": "Budapest",
		"Peru": "Lima", "Cuba": "Havana", "Kenya": "Nairobi", "Chile": "Santiago", "Russia": "Moscow", "China": "Beijing",
		"England": "London", "United Kingdom": "London",
	}
}
