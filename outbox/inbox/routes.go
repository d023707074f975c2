package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// Limits of a request. They also bound the memory of its validation, in which huma collects all errors.
const (
	maxBody   = 16 << 10 // bytes
	maxCommas = 400      // in a body: 100 preferences have 300
	maxQuery  = 1 << 10  // bytes
)

// maxPage is the maximum size of a page, in bytes, which stays in memory while a client does not read it.
const maxPage = 1 << 20

// Limits of an error: the errors of parameters, and the bytes of a text.
const (
	maxErrors = 10
	maxText   = 100
)

// visitKey is the key of the visit in the context of an operation.
type visitKey struct{}

// visitOf returns the visit that authenticated set.
func visitOf(ctx context.Context) visit {
	v, _ := ctx.Value(visitKey{}).(visit)
	return v
}

func channelOf(ctx context.Context) int64 { return visitOf(ctx).channel }

type pageInput struct {
	Before   int64  `query:"before" doc:"an id: the newest notifications before it; next of the previous page"`
	Limit    int    `query:"limit" minimum:"1" maximum:"100" default:"20"`
	Archived bool   `query:"archived" doc:"archived notifications instead of the list"`
	Locale   string `query:"locale" maxLength:"35" doc:"the locale of titles and bodies, such as ko; by default the channel's"`
}

type pageBody struct {
	Notifications []Notification `json:"notifications" nullable:"false"`
	Next          int64          `json:"next,omitempty" doc:"before of the next page, which may be empty; absent on the last page"`
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
			return nil, h.mark(ctx, func(channel int64) error { return h.store.MarkSeen(ctx, channel) })
		})
	add(h, api, http.MethodPost, "/inbox/read", "read", "Mark notifications as read or unread", h.read)
	add(h, api, http.MethodPost, "/inbox/archive", "archive", "Archive notifications, or return them to the list",
		func(ctx context.Context, r *in[archiveBody]) (*none, error) {
			return nil, h.mark(ctx, func(channel int64) error {
				return h.store.Archive(ctx, channel, r.Body.IDs, r.Body.Archived == nil || *r.Body.Archived)
			})
		})
	add(h, api, http.MethodGet, "/inbox/preferences", "preferences", "List preferences by category and medium",
		func(ctx context.Context, _ *none) (*out[preferencesBody], error) { return h.preferences(ctx) })
	add(h, api, http.MethodPut, "/inbox/preferences", "prefer", "Opt out of categories and media, or in",
		func(ctx context.Context, r *in[preferencesInput]) (*out[preferencesBody], error) {
			err := h.flights.mark(ctx, visitOf(ctx).flight, func() error {
				return h.store.SetPreferences(ctx, channelOf(ctx), r.Body.Preferences)
			})
			if err != nil {
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
			e.Value, e.Location, e.Message = nil, cut(e.Location), cut(e.Message)
		}
	}
	return answer, nil
}

func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// authenticated is the middleware of every operation.
func (h *Handler) authenticated(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	v, leave, err := h.enter(r.Context(), tokenOf(r))
	if err != nil {
		h.Refuse(w, err)
		return
	}
	defer leave()
	if len(r.URL.RawQuery) > maxQuery {
		write(w, problem(http.StatusRequestURITooLong, fmt.Sprintf("the query is too long; allowed: up to %d bytes", maxQuery)))
		return
	}
	next(huma.WithValue(ctx, visitKey{}, v))
}

func (h *Handler) page(ctx context.Context, r *pageInput) (*out[pageBody], error) {
	list, next, err := h.store.Page(ctx, channelOf(ctx), Page{Before: r.Before, Limit: r.Limit, Archived: r.Archived, Locale: r.Locale})
	n := fitting(list)
	clear(list[n:]) // the rest keeps no memory while the response is written
	if n < len(list) {
		next = list[n-1].ID
	}
	return &out[pageBody]{pageBody{list[:n], next}}, err
}

// fitting returns how many notifications fit into a page, at least one. A byte is up to 6 bytes of JSON, such as \u003c.
func fitting(list []Notification) int {
	size := 0
	for i, n := range list {
		if size += 300 + 6*(len(n.Title)+len(n.Body)+len(n.Data)); size > maxPage {
			return max(1, i)
		}
	}
	return len(list)
}

func (h *Handler) read(ctx context.Context, r *in[readBody]) (*none, error) {
	read := r.Body.Read == nil || *r.Body.Read
	switch {
	case r.Body.All == (len(r.Body.IDs) > 0), r.Body.All && !read:
		return nil, problem(http.StatusUnprocessableEntity,
			`allowed bodies: {"ids": […], "read": true}, {"ids": […], "read": false}, {"all": true}`)
	case r.Body.All:
		return nil, h.mark(ctx, func(channel int64) error { return h.store.MarkAllRead(ctx, channel) })
	}
	return nil, h.mark(ctx, func(channel int64) error { return h.store.MarkRead(ctx, channel, r.Body.IDs, read) })
}

// mark runs an operation that marks notifications.
func (h *Handler) mark(ctx context.Context, do func(channel int64) error) error {
	v := visitOf(ctx)
	err := h.flights.mark(ctx, v.flight, func() error { return do(v.channel) })
	if err == nil && h.marked != nil {
		h.marked(v.channel)
	}
	return err
}

func (h *Handler) preferences(ctx context.Context) (*out[preferencesBody], error) {
	list, err := h.store.Preferences(ctx, channelOf(ctx))
	return &out[preferencesBody]{preferencesBody{list}}, err
}
