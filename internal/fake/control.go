package fake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// handler routes every path.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /webhook/{any...}", s.play(s.webhook()))
	mux.HandleFunc("POST /sms", s.play(s.sms()))
	mux.HandleFunc("POST /token", s.fcmToken)
	mux.HandleFunc("POST /v1/projects/{project}/messages:send", s.play(s.fcm()))
	mux.HandleFunc("POST /3/device/{token}", s.play(s.apns()))
	mux.HandleFunc("POST /webpush/subscriptions", s.subscribe)
	mux.HandleFunc("POST /webpush/{id}", s.play(s.webpush()))
	mux.HandleFunc("POST /alimtalk/v2/services/{service}/messages", s.play(s.alimTalk()))
	mux.HandleFunc("GET /alimtalk/v2/services/{service}/messages/{message}", s.alimTalkReceipt)

	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, map[string]string{"status": "ok"}) })
	mux.HandleFunc("GET /summary", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, s.Summary()) })
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, s.Faults()) })
	mux.HandleFunc("PUT /faults", s.putFaults)
	mux.HandleFunc("GET /calls", s.getCalls)
	//sqlfile:allow a method and a path
	mux.HandleFunc("DELETE /calls", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /credentials", func(w http.ResponseWriter, _ *http.Request) {
		c, err := s.Credentials()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answerJSON(w, c)
	})
	return s.gated(mux)
}

// answerJSON answers with one document.
func answerJSON(w http.ResponseWriter, body any) {
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // a client that has left needs no answer
}

// problem refuses a request of the control API.
func problem(w http.ResponseWriter, text string) { http.Error(w, text, http.StatusBadRequest) }

// getCalls answers with the last calls, a JSON object a line.
func (s *Server) getCalls(w http.ResponseWriter, r *http.Request) {
	for name := range r.URL.Query() {
		if name != "provider" {
			problem(w, fmt.Sprintf("query %q is not allowed; allowed is provider", brief(name)))
			return
		}
	}
	p := Provider(r.URL.Query().Get("provider"))
	if p != "" && !slices.Contains(Providers(), p) {
		problem(w, fmt.Sprintf("provider %q is not allowed; allowed are %s", brief(string(p)), strings.Join(targets()[:len(Providers())], ", ")))
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	e := json.NewEncoder(w)
	for _, c := range s.Calls(p) {
		if err := e.Encode(c); err != nil {
			return // the client has left
		}
	}
}

// putFaults replaces the faults by a list of others, in YAML or JSON.
func (s *Server) putFaults(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		problem(w, "the body cannot be read; allowed are up to 1 MiB")
		return
	}
	faults, err := ParseFaults(string(body))
	if err != nil {
		problem(w, err.Error())
		return
	}
	s.plan.replace(faults)
	answerJSON(w, s.Faults())
}
