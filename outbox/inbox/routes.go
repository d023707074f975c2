package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belfryhq/belfry/internal/text"
)

// Limits of a request. They also bound the memory of its validation, in which huma collects all errors.
const (
	maxBody   = 16 << 10 // bytes
	maxCommas = 400      // in a body: 100 preferences have 300
	maxQuery  = 1 << 10  // bytes
)

// Limits of an error: the errors of parameters, and the characters of the texts of one.
const (
	maxErrors = 10
	maxText   = 100
)

// channelKey is the key of the reader's channel in the context of an operation.
type channelKey struct{}

// channelOf returns the channel that authenticated set.
func channelOf(ctx context.Context) int64 {
	id, _ := ctx.Value(channelKey{}).(int64)
	return id
}

type pageInput struct {
	Before   int64  `query:"before" doc:"an id: the newest notifications before it; next of the previous page"`
	Limit    int    `query:"limit" minimum:"1" maximum:"100" default:"20"`
	Archived bool   `query:"archived" doc:"archived notifications instead of the list"`
	Locale   string `query:"locale" maxLength:"35" doc:"the locale of titles and bodies, such as ko; by default the channel's"`
}

type pageBody struct {
	Notifications []Notification `json:"notifications" nullable:"false"`
	Next          int64          `json:"next,omitempty" doc:"before of the next page; absent on the last page"`
}

type readBody struct {
	IDs  []int64 `json:"ids,omitempty" minItems:"1" maxItems:"100" nullable:"false"`
	Read *bool   `json:"read,omitempty" doc:"false marks them as unread; by default true"`
	All  bool    `json:"all,omitempty" doc:"instead of ids: marks all notifications as read"`
}

type archiveBody struct {
	IDs      []int64 `json:"ids" minItems:"1" maxItems:"100" nullable:"false"`
	Archived *bool   `json:"archived,omitempty" doc:"false returns them to the list; by default true"`
}

type preferencesInput struct {
	Preferences []Preference `json:"preferences" minItems:"1" maxItems:"100" nullable:"false"`
}

type preferencesBody struct {
	Preferences []Effective `json:"preferences" nullable:"false"`
}

type (
	in[T any]  struct{ Body T }
	out[T any] struct{ Body T }
	none       struct{}
)

// register adds the operations to the mux and returns the OpenAPI document.
func (h *Handler) register() ([]byte, error) {
	format := huma.Format{Unmarshal: decode, Marshal: func(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }}
	api := humago.New(h.mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "belfry notification centre", Version: "1",
				Description: "What a reader can do with the own notification centre. A token is a JWT for one channel."},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "kid; aud, sub, exp within an hour"}},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats: map[string]huma.Format{"application/json": format, "json": format}, DefaultFormat: "application/json",
		RejectUnknownQueryParameters: true, Transformers: []huma.Transformer{brief},
	})
	api.UseMiddleware(h.authenticated)

	add(h, api, http.MethodGet, "/inbox", "list", "List notifications, newest first", h.page)
	add(h, api, http.MethodGet, "/inbox/count", "count", "Count unread and unseen notifications",
		func(ctx context.Context, _ *none) (*out[Counts], error) {
			counts, err := h.store.Counts(ctx, channelOf(ctx))
			return &out[Counts]{counts}, err
		})
	add(h, api, http.MethodPost, "/inbox/seen", "seen", "Mark the list as opened",
		func(ctx context.Context, _ *none) (*none, error) {
			return h.mark(ctx, h.store.MarkSeen(ctx, channelOf(ctx)))
		})
	add(h, api, http.MethodPost, "/inbox/read", "read", "Mark notifications as read or unread", h.read)
	add(h, api, http.MethodPost, "/inbox/archive", "archive", "Archive notifications, or return them to the list",
		func(ctx context.Context, r *in[archiveBody]) (*none, error) {
			return h.mark(ctx, h.store.Archive(ctx, channelOf(ctx), r.Body.IDs, r.Body.Archived == nil || *r.Body.Archived))
		})
	add(h, api, http.MethodGet, "/inbox/preferences", "preferences", "List preferences by category and medium",
		func(ctx context.Context, _ *none) (*out[preferencesBody], error) { return h.preferences(ctx) })
	add(h, api, http.MethodPut, "/inbox/preferences", "prefer", "Opt out of categories and media, or in",
		func(ctx context.Context, r *in[preferencesInput]) (*out[preferencesBody], error) {
			if err := h.store.SetPreferences(ctx, channelOf(ctx), r.Body.Preferences); err != nil {
				return nil, err
			}
			return h.preferences(ctx)
		})

	h.mux.HandleFunc("GET "+Prefix+"/bell.js", serveBell)
	document, err := json.Marshal(api.OpenAPI())
	h.mux.HandleFunc("GET "+Prefix+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(h.document)
	})
	return document, err
}

// add registers an operation. Errors of do become problems.
func add[I, O any](h *Handler, api huma.API, method, path, id, summary string, do func(context.Context, *I) (*O, error)) {
	huma.Register(api, huma.Operation{
		OperationID: id, Method: method, Path: Prefix + path, Summary: summary, MaxBodyBytes: maxBody,
		Errors: []int{http.StatusUnauthorized, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, func(ctx context.Context, in *I) (*O, error) {
		result, err := do(ctx, in)
		var refused huma.StatusError
		if err != nil && !errors.As(err, &refused) {
			err = h.problemOf(err)
		}
		return result, err
	})
}

// decode parses a body.
func decode(body []byte, v any) error {
	if bytes.Count(body, []byte(",")) > maxCommas {
		return errors.New("has too many values")
	}
	return json.Unmarshal(body, v)
}

// brief is a huma.Transformer: it bounds an error. huma's errors repeat values, and each unknown key the whole body.
func brief(_ huma.Context, _ string, answer any) (any, error) {
	if p, is := answer.(*huma.ErrorModel); is {
		p.Errors = p.Errors[:min(len(p.Errors), maxErrors)]
		for _, e := range p.Errors {
			e.Value, e.Location, e.Message = nil, text.OneLine(e.Location, maxText), text.OneLine(e.Message, maxText)
		}
	}
	return answer, nil
}

// authenticated is the middleware of every operation.
func (h *Handler) authenticated(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	id, _, err := h.Reader(r)
	if err != nil {
		h.Refuse(w, err)
		return
	}
	if len(r.URL.RawQuery) > maxQuery {
		write(w, problem(http.StatusRequestURITooLong, fmt.Sprintf("the query is too long; allowed: up to %d bytes", maxQuery)))
		return
	}
	next(huma.WithValue(ctx, channelKey{}, id))
}

func (h *Handler) page(ctx context.Context, r *pageInput) (*out[pageBody], error) {
	list, err := h.store.Page(ctx, channelOf(ctx), Page{Before: r.Before, Limit: r.Limit, Archived: r.Archived, Locale: r.Locale})
	body := pageBody{Notifications: list}
	if len(list) == r.Limit {
		body.Next = list[len(list)-1].ID
	}
	return &out[pageBody]{body}, err
}

func (h *Handler) read(ctx context.Context, r *in[readBody]) (*none, error) {
	read := r.Body.Read == nil || *r.Body.Read
	switch {
	case r.Body.All == (len(r.Body.IDs) > 0), r.Body.All && !read:
		return nil, problem(http.StatusUnprocessableEntity,
			`allowed bodies: {"ids": […], "read": true}, {"ids": […], "read": false}, {"all": true}`)
	case r.Body.All:
		return h.mark(ctx, h.store.MarkAllRead(ctx, channelOf(ctx)))
	}
	return h.mark(ctx, h.store.MarkRead(ctx, channelOf(ctx), r.Body.IDs, read))
}

// mark is the result of an operation that marks notifications.
func (h *Handler) mark(ctx context.Context, err error) (*none, error) {
	if err == nil && h.marked != nil {
		h.marked(channelOf(ctx))
	}
	return nil, err
}

func (h *Handler) preferences(ctx context.Context) (*out[preferencesBody], error) {
	list, err := h.store.Preferences(ctx, channelOf(ctx))
	return &out[preferencesBody]{preferencesBody{list}}, err
}
