package probe_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestRequests(t *testing.T) {
	for _, tt := range []struct {
		name, text, err string
		want            int
	}{
		{name: "running and waiting", want: 5, text: "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n" +
			"vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 3.0\nvllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 2.0\n" +
			"vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 2.0\n"},
		{name: "two engines", want: 3, text: "vllm:num_requests_running{engine=\"0\"} 1.0\nvllm:num_requests_running{engine=\"1\"} 2.0\n"},
		{name: "another server", text: "up 1\n", err: "does not say"},
		{name: "nonsense", text: "vllm:num_requests_running{} NaN\n", err: "no number"},
		{name: "negative", text: "vllm:num_requests_running{} -1\n", err: "no number"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/metrics" {
					_, _ = w.Write([]byte(tt.text))
				}
			}))
			got, err := server.Requests(t.Context())
			if tt.err == "" && (err != nil || got != tt.want) {
				t.Errorf("%d, %v; want %d", got, err, tt.want)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%d, %v; want an error about %q", got, err, tt.err)
			}
		})
	}
}
