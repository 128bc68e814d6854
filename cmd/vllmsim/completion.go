package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// maxBody bounds a request's body.
const maxBody = 64 << 20

// generation is the body of both kinds of request.
type generation struct {
	Model               string          `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            []message       `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MinTokens           int             `json:"min_tokens"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	Stop                json.RawMessage `json:"stop"`
	Seed                int64           `json:"seed"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage         bool `json:"include_usage"`
		ContinuousUsageStats bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	Logprobs json.RawMessage `json:"logprobs"` // a number for completions, a boolean for chat
}

// refusal is a sentence of vLLM's that goes to the client with status 400.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) refusal { return refusal(fmt.Sprintf(format, args...)) }

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

func (g *generation) wantsLogprobs() bool {
	s := string(g.Logprobs)
	return s != "" && s != "null" && s != "false"
}

func (a *api) completions(w http.ResponseWriter, r *http.Request) { a.generate(w, r, false) }

func (a *api) chatCompletions(w http.ResponseWriter, r *http.Request) { a.generate(w, r, true) }

// generate is both kinds of request: understand, submit, answer.
func (a *api) generate(w http.ResponseWriter, r *http.Request, chat bool) {
	var g generation
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&g); err != nil {
		writeError(w, http.StatusBadRequest, "BadRequestError", "", err.Error())
		return
	}
	if g.Model == "" {
		g.Model = a.names[0]
	}
	if !slices.Contains(a.names, g.Model) {
		writeError(w, http.StatusNotFound, "NotFoundError", "model",
			fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", g.Model, strings.Join(a.names, ", ")))
		return
	}
	req, err := a.request(&g, chat)
	if err != nil {
		writeError(w, http.StatusBadRequest, "BadRequestError", "", err.Error())
		return
	}
	if !a.s.engine.submit(req) {
		text := "cannot schedule new futures after shutdown"
		if a.s.engine.currentState() == dead {
			text = engineDead
		}
		writeError(w, http.StatusInternalServerError, "InternalServerError", "", text)
		return
	}
	a.open.Add(1)
	defer a.open.Add(-1)
	defer a.s.engine.abort(req) // harmless when it has ended
	out := &answer{w: w, r: r, req: req, g: &g, chat: chat, model: jsonText(g.Model), fingerprint: a.fingerprint()}
	if g.Stream {
		out.stream()
	} else {
		out.whole()
	}
}

// fingerprint names the version and the layout, where the version does that.
func (a *api) fingerprint() string {
	if !a.s.rel.fingerprint {
		return ""
	}
	layout := ""
	if a.s.opt.tp > 1 {
		layout = fmt.Sprintf("-tp%d", a.s.opt.tp)
	}
	return "vllm-" + a.s.rel.version + layout + "-51e0a7b2"
}

// request turns the body into work for the engine.
func (a *api) request(g *generation, chat bool) (*request, error) {
	req := newRequest()
	prompt, err := "", error(nil)
	if chat {
		prompt, err = chatPrompt(g.Messages)
		req.promptTokens = countTokens(prompt) + 3*len(g.Messages)
	} else {
		prompt, req.promptTokens, err = completionPrompt(g.Prompt)
	}
	if err != nil {
		return nil, err
	}
	room := a.s.model.maxLen - req.promptTokens
	if room < 1 {
		return nil, refuse("This model's maximum context length is %d tokens. However, your request has %d input tokens. "+
			"Please reduce the length of the input messages.", a.s.model.maxLen, req.promptTokens)
	}
	limit := 16
	if chat {
		limit = room
	}
	if g.MaxTokens != nil {
		limit = *g.MaxTokens
	}
	if g.MaxCompletionTokens != nil {
		limit = *g.MaxCompletionTokens
	}
	if limit < 1 {
		return nil, refuse("max_tokens must be at least 1, got %d.", limit)
	}
	if limit > room {
		return nil, refuse("'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d).",
			limit, a.s.model.maxLen, req.promptTokens, limit, a.s.model.maxLen, req.promptTokens)
	}
	req.maxTokens, req.minTokens, req.ignoreEOS = limit, g.MinTokens, g.IgnoreEOS
	if req.stop, err = stringOrList(g.Stop); err != nil {
		return nil, refuse("stop must be a string or a list of strings")
	}
	req.writer = newWriter(prompt, a.s.set.Seed+uint64(g.Seed))
	return req, nil
}

// chatPrompt is the text of the last message, with all of them before it.
func chatPrompt(messages []message) (string, error) {
	if len(messages) == 0 {
		return "", refuse("messages must not be empty")
	}
	var all []string
	for _, m := range messages {
		var text string
		if json.Unmarshal(m.Content, &text) == nil {
			all = append(all, text)
			continue
		}
		var parts []struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(m.Content, &parts); err != nil {
			return "", refuse("content must be a string or a list of parts")
		}
		for _, p := range parts {
			all = append(all, p.Text)
		}
	}
	return strings.Join(all, "\n"), nil
}

// completionPrompt reads a text, a list with one text, or a list of token ids.
func completionPrompt(raw json.RawMessage) (text string, tokens int, err error) {
	if list, err := stringOrList(raw); err == nil && len(list) == 1 {
		return list[0], countTokens(list[0]), nil
	}
	var ids []int
	if err := json.Unmarshal(raw, &ids); err == nil && len(ids) > 0 {
		return fmt.Sprint(ids), len(ids), nil
	}
	var lists [][]int
	if err := json.Unmarshal(raw, &lists); err == nil && len(lists) == 1 && len(lists[0]) > 0 {
		return fmt.Sprint(lists[0]), len(lists[0]), nil
	}
	return "", 0, refuse("prompt must be one text or one list of token ids: the simulation takes no batches")
}

func stringOrList(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var list []string
	err := json.Unmarshal(raw, &list)
	return list, err
}
