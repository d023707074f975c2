package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/client"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/printer"
)

type greeting struct {
	Name string   `arg:"NAME"`
	Loud bool     `flag:"loud" help:"loudly"`
	Tags []string `flag:"tag" label:"TAG" help:"tags"`
	Who  string   `flag:"actor" help:"who" local:"true"`
}

type greeted struct {
	Said string   `json:"said"`
	Tags []string `json:"tags"`
}

// greet is an operation that is nowhere but here. It fails as it is told to.
func greet(fail func() error) admin.Operation {
	return admin.Define(admin.Operation{
		Name: "people greet", Short: "Greet somebody", Role: admin.Operator, Changes: true,
		Confirm: admin.Confirming(func(_ context.Context, _ *admin.Env, in greeting) (admin.Question, error) {
			return admin.Question{Text: "Greet " + in.Name + "?", If: "that is meant"}, nil
		}),
	}, func(_ context.Context, env *admin.Env, in greeting) (greeted, error) {
		return greeted{env.Actor + " greets " + in.Name, in.Tags}, fail()
	}, func(p *printer.Page, _ greeting, out greeted) { p.Printf("%s\n", out.Said) })
}

// serve returns a client of an API with operations, which asks as ann.
func serve(operations ...admin.Operation) *client.Client {
	return open(api.New(api.Options{
		Operations: operations,
		Authenticate: func(_ context.Context, token string) (admin.Identity, error) {
			if token != "secret" {
				return admin.Identity{}, admin.ErrToken
			}
			return admin.Identity{Name: "ann", Role: admin.Operator}, nil
		},
	}))
}

func open(h http.Handler) *client.Client {
	as := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	as.Header.Set("Authorization", "Bearer secret")
	return client.Local(h, as)
}

// What is defined once is done through the API as well, question, result and receipt alike.
func TestClient_DoesWhateverIsDefined(t *testing.T) {
	t.Parallel()
	o := greet(func() error { return nil })
	c := serve(o)
	in := o.NewInput().(*greeting)
	in.Name, in.Tags = "Kim/../ä?", []string{"a,b", "c"}
	question, err := c.Question(t.Context(), o, in)
	require.NoError(t, err)
	require.Equal(t, admin.Question{Text: "Greet Kim/../ä??", If: "that is meant"}, question)
	out, err := c.Run(t.Context(), o, in)
	require.NoError(t, err)
	acted, is := out.(admin.Acted)
	require.True(t, is)
	require.Equal(t, greeted{"ann greets Kim/../ä?", []string{"a,b", "c"}}, acted.Result)
	require.EqualValues(t, 1, acted.Receipt.Concerned)
	in.Who = "somebody else"
	_, err = c.Run(t.Context(), o, in)
	require.ErrorContains(t, err, "actor: cannot be said to a server")
	require.Equal(t, errkind.Invalid, errkind.Of(err))
}

// An error has its kind, its text, what to do next and what was done on either side.
func TestClient_ErrorsAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	told := func(kind errkind.Kind) error { return &admin.ToldError{Of: kind, Text: "it is so"} }
	for _, kind := range []errkind.Kind{errkind.NotFound, errkind.Conflict, errkind.Denied} {
		for _, failure := range []error{told(kind), &admin.AdvisedError{Err: told(kind), Next: "look again"}} {
			o := greet(func() error { return failure })
			in := o.NewInput().(*greeting)
			in.Name = "Kim"
			out, err := serve(o).Run(t.Context(), o, in)
			require.EqualError(t, err, failure.Error())
			require.Equal(t, kind, errkind.Of(err))
			require.NotNil(t, out, "what was done is shown all the same")
		}
	}
	for kind, failure := range map[errkind.Kind]error{ //nolint:exhaustive // the others are above
		errkind.Held: &admin.HeldError{Err: told(errkind.Conflict)}, errkind.Unavailable: &admin.UnavailableError{Err: told(errkind.Failed)},
		errkind.Unknown: &admin.UnknownOutcomeError{Err: told(errkind.Failed)}, errkind.Standby: told(errkind.Standby), errkind.Failed: told(errkind.Failed), errkind.TooSlow: told(errkind.TooSlow),
		errkind.Invalid: &admin.InvalidError{Problems: []admin.Problem{{Param: "tag", Text: "is odd"}, {Text: "is so"}}},
	} {
		o := greet(func() error { return failure })
		in := o.NewInput().(*greeting)
		in.Name = "Kim"
		_, err := serve(o).Run(t.Context(), o, in)
		require.Equal(t, kind, errkind.Of(err), "%v", err)
		if kind == errkind.Invalid {
			require.EqualError(t, err, failure.Error())
		}
	}
}

// An act that is not answered may have taken effect.
func TestClient_SilenceIsNoFailure(t *testing.T) {
	t.Parallel()
	c := open(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		panic(http.ErrAbortHandler)
	}))
	o := greet(func() error { return nil })
	_, err := c.Run(t.Context(), o, &greeting{Name: "Kim"})
	require.Equal(t, errkind.Unknown, errkind.Of(err))
	require.ErrorContains(t, err, "may or may not have taken effect")
	read := o
	read.Changes = false
	_, err = c.Run(t.Context(), read, &greeting{Name: "Kim"})
	require.Equal(t, errkind.Unavailable, errkind.Of(err), "%v", err)
}

// A stream comes piece by piece to its end, its problem, or where it breaks off.
func TestClient_Streams(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fail error
		kind errkind.Kind
	}{{nil, ""}, {&admin.ToldError{Of: errkind.NotFound, Text: "it is gone"}, errkind.NotFound}} {
		o := admin.DefineStream(admin.Operation{Name: "people walk", Short: "Walk by", Role: admin.Viewer},
			func(_ context.Context, _ *admin.Env, _ admin.None, each func(greeted) error) (greeted, error) {
				for _, name := range []string{"Ann", "Kim"} {
					if err := each(greeted{Said: name}); err != nil {
						return greeted{}, err
					}
				}
				return greeted{Said: "all"}, test.fail
			}, func(admin.None) func(*printer.Page, greeted) { return func(*printer.Page, greeted) {} }, func(*printer.Page, admin.None, greeted) {})
		var came []any
		out, err := serve(o).Stream(t.Context(), o, o.NewInput(), func(item any) error {
			came = append(came, item)
			return nil
		})
		require.Equal(t, []any{greeted{Said: "Ann", Tags: []string{}}, greeted{Said: "Kim", Tags: []string{}}}, came)
		if test.fail == nil {
			require.NoError(t, err)
			require.Equal(t, greeted{Said: "all", Tags: []string{}}, out)
			continue
		}
		require.EqualError(t, err, test.fail.Error())
		require.Equal(t, test.kind, errkind.Of(err))
	}
	broken := open(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("id: 1\ndata: {\"said\": \"Ann\"}\n\n"))
	}))
	o := admin.DefineStream(admin.Operation{Name: "people walk", Short: "Walk by", Role: admin.Viewer},
		func(context.Context, *admin.Env, admin.None, func(greeted) error) (admin.None, error) {
			return admin.None{}, nil
		},
		func(admin.None) func(*printer.Page, greeted) { return func(*printer.Page, greeted) {} }, func(*printer.Page, admin.None, admin.None) {})
	_, err := broken.Stream(t.Context(), o, o.NewInput(), func(any) error { return nil })
	require.ErrorContains(t, err, "broke off")
	require.Equal(t, errkind.Unavailable, errkind.Of(err))
}
