package main

import (
	"hash/fnv"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
)

// corpus is what the simulation talks about. Plain English, because the probes that look for garbage know English.
const corpus = `The harbour was quiet in the early morning, and only a few boats moved on the grey water. ` +
	`A baker opened the door of his shop and put the first warm loaves on the shelf behind the window. ` +
	`Two children walked past on their way to school and counted the gulls on the roof of the old customs house. ` +
	`In the afternoon the wind turned to the west and brought rain, so the market closed an hour before its time. ` +
	`Most people went home, but the clockmaker stayed at his bench until the light was gone. ` +
	`He had promised to repair a tall clock for the library, and the last wheel still did not fit. ` +
	`When he finally heard the slow, even beat that he had been waiting for, he smiled and put away his tools. ` +
	`Outside the lamps were lit, and the street shone like the back of a fish. ` +
	`The next day a letter arrived from the north, where his sister kept bees on a small farm near the river. ` +
	`She wrote that the winter had been long but that the hives were strong and the willows were already in bloom. ` +
	`He read the letter twice, folded it carefully, and decided to visit her before the end of the month. ` +
	`The train left at noon, and from the window he saw fields, a mill, and a bridge with seven arches. `

// endAfter is the number of tokens after which a text of its own accord ends with the next sentence.
const endAfter = 120

// writer makes the text of one request, one token at a time and always the same for the same prompt and seed.
type writer struct {
	queue []string // what is still to be said, token by token
	rng   *rand.Rand
	said  int
	// next sentence of the corpus, or the next number of a count
	sentences []string
	at        int
	number    int
	answered  bool // an answer ends where it ends
}

func newWriter(prompt string, seed uint64) *writer {
	h := fnv.New64a()
	h.Write([]byte(prompt))
	w := &writer{rng: rand.New(rand.NewPCG(h.Sum64(), seed)), sentences: strings.SplitAfter(strings.TrimSuffix(corpus, " "), ". ")}
	w.at = w.rng.IntN(len(w.sentences))
	switch text, n := answerTo(prompt); {
	case n > 0:
		w.number = n
	case text != "":
		w.queue, w.answered = tokenize(text), true
	}
	return w
}

// next returns the next token and whether the text ends with it; then its text is empty.
func (w *writer) next() (text string, logprob float64, eos bool) {
	// Mostly sure of itself, never twice the same.
	logprob = -0.02 - 0.6*w.rng.Float64()*w.rng.Float64()
	if len(w.queue) == 0 {
		switch {
		case w.answered:
			w.answered = false
			return "", logprob, true
		case w.number > 0:
			w.queue = []string{" " + strconv.Itoa(w.number), ","}
			w.number++
		case w.said >= endAfter:
			w.said = 0
			return "", logprob, true
		default:
			sentence := w.sentences[w.at%len(w.sentences)]
			w.at++
			w.queue = tokenize(" " + strings.TrimSpace(sentence))
		}
	}
	text, w.queue = w.queue[0], w.queue[1:]
	w.said++
	return text, logprob, false
}

var tokenPattern = regexp.MustCompile(`\n| ?[\pL\pN']{1,8}|[\pL\pN']{1,8}| ?[^\s\pL\pN']{1,3}|\s`)

// tokenize cuts text the way a vocabulary of common words would: a word with the space before it, long words in pieces.
func tokenize(text string) []string { return tokenPattern.FindAllString(text, -1) }

// countTokens is the length of a prompt in tokens, at least 1.
func countTokens(text string) int { return max(1, len(tokenPattern.FindAllStringIndex(text, -1))) }
