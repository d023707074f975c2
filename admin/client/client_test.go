package client_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/client"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/migrations/dbtest"
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

// serve serves operations to the token "secret", and returns a client.
func serve(t *testing.T, operations ...admin.Operation) *client.Client {
	t.Helper()
	server := httptest.NewServer(api.New(api.Options{
		Operations: operations,
		Authenticate: func(_ context.Context, token string) (admin.Identity, error) {
			if token != "secret" {
				return admin.Identity{}, admin.ErrToken
			}
			return admin.Identity{Name: "ann", Role: admin.Operator}, nil
		},
	}))
	t.Cleanup(server.Close)
	return open(t, client.Config{Server: server.URL})
}

func open(t *testing.T, c client.Config) *client.Client {
	t.Helper()
	opened, err := client.New(c, "secret")
	require.NoError(t, err)
	t.Cleanup(opened.Close)
	return opened
}

// What is defined once is done through a server as well, question, result and receipt alike.
func TestClient_DoesWhateverIsDefined(t *testing.T) {
	t.Parallel()
	o := greet(func() error { return nil })
	c := serve(t, o)
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
			out, err := serve(t, o).Run(t.Context(), o, in)
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
		_, err := serve(t, o).Run(t.Context(), o, in)
		require.Equal(t, kind, errkind.Of(err), "%v", err)
		if kind == errkind.Invalid {
			require.EqualError(t, err, failure.Error())
		}
	}
}

// A token leaves this machine through TLS only.
func TestConfig_NoTokenTravelsInTheClear(t *testing.T) {
	t.Parallel()
	for _, server := range []string{
		"http://belfry.example.com", "http://192.0.2.1:8470", "http://0.0.0.0", "http://[::]:8470", "http://localhost.example.com", "http://127.0.0.1.example.com", "http://localhost@example.com",
		"https://u:p@example.com", "ftp://localhost", "belfry.example.com", "https://", "https://:443", "https://example.com/?x", "https://example.com/#x", "//localhost", "http:localhost",
	} {
		_, err := client.New(client.Config{Server: server}, "secret")
		require.ErrorContains(t, err, "client.server: ", server)
		require.ErrorContains(t, err, "allowed values: https://HOST", server)
		require.ErrorAs(t, err, new(*client.UnfitError))
		require.Error(t, client.Config{Server: server}.Validate())
	}
	for _, server := range []string{"https://belfry.example.com", "https://belfry.example.com/a/b/", "http://localhost:8470", "http://127.8.9.1/api/v1", "http://[::1]:8470"} {
		require.NoError(t, client.Config{Server: server}.Validate(), server)
	}
	require.NoError(t, client.Config{}.Validate())
}

// A token goes to the server that is named, and nowhere else.
func TestClient_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	o := greet(func() error { return nil })
	_, err := open(t, client.Config{Server: server.URL}).Run(t.Context(), o, &greeting{Name: "Kim"})
	require.ErrorContains(t, err, "answers otherwise than this belfry expects")
	require.False(t, reached)
}

// An authority of the user's own is trusted when it is named, and not before.
func TestClient_TrustsTheAuthorityThatIsNamed(t *testing.T) {
	t.Parallel()
	files := dbtest.NewCertificates(t)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = w.Write([]byte(`{"said": "` + req.Header.Get("Authorization") + " " + req.URL.Path + `"}`))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	o := greet(func() error { return nil })
	_, err = open(t, client.Config{Server: server.URL}).Run(t.Context(), o, &greeting{Name: "Kim"})
	require.ErrorContains(t, err, "--ca-file")
	require.Equal(t, errkind.Unavailable, errkind.Of(err), "nothing was sent, so nothing is in doubt: %v", err)
	out, err := open(t, client.Config{Server: server.URL + "/a/b", CAFile: files.CA}).Run(t.Context(), o, &greeting{Name: "Kim"})
	require.NoError(t, err)
	require.Equal(t, greeted{Said: "Bearer secret /a/b/api/v1/people/Kim/greet"}, out)
}

// An act that was sent and not answered may have taken effect; one that was never sent has not.
func TestClient_SilenceIsNoFailure(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	o := greet(func() error { return nil })
	c := open(t, client.Config{Server: server.URL})
	_, err := c.Run(t.Context(), o, &greeting{Name: "Kim"})
	require.Equal(t, errkind.Unknown, errkind.Of(err))
	require.ErrorContains(t, err, "may or may not have taken effect")
	look := o
	look.Changes = false
	_, err = c.Run(t.Context(), look, &greeting{Name: "Kim"})
	require.Equal(t, errkind.Unavailable, errkind.Of(err), "%v", err)
	server.Close()
	_, err = c.Run(t.Context(), o, &greeting{Name: "Kim"})
	require.Equal(t, errkind.Unavailable, errkind.Of(err), "nobody listens: %v", err)
	require.NotContains(t, err.Error(), "may or may not")
}

// What is no token is said before anything is sent, and one that is not taken by the server.
func TestClient_NeedsAToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(text string) client.Config {
		path := filepath.Join(dir, "token")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return client.Config{Server: "http://127.0.0.1:1", TokenFile: path}
	}
	for _, c := range []client.Config{{Server: "http://127.0.0.1:1"}, file(""), file("\nsecret"), file("two words"), {Server: "http://127.0.0.1:1", TokenFile: dir}} {
		_, err := client.New(c, "")
		require.ErrorContains(t, err, "client.token_file: ")
		require.ErrorAs(t, err, new(*client.UnfitError))
	}
	_, err := client.New(file("secret\nand more\n"), "")
	require.NoError(t, err)
	_, err = client.New(client.Config{Server: "http://127.0.0.1:1", CAFile: filepath.Join(dir, "none")}, "secret")
	require.ErrorContains(t, err, "client.ca_file: ")
	o := greet(func() error { return nil })
	server := httptest.NewServer(api.New(api.Options{Operations: []admin.Operation{o}, Authenticate: func(context.Context, string) (admin.Identity, error) {
		return admin.Identity{}, admin.ErrToken
	}}))
	t.Cleanup(server.Close)
	_, err = open(t, client.Config{Server: server.URL}).Run(t.Context(), o, &greeting{Name: "Kim"})
	require.ErrorAs(t, err, new(*client.UnfitError))
	require.ErrorContains(t, err, admin.ErrToken.Error())
	require.NotContains(t, err.Error(), "secret")
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
		out, err := serve(t, o).Stream(t.Context(), o, o.NewInput(), func(item any) error {
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
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("id: 1\ndata: {\"said\": \"Ann\"}\n\n"))
	}))
	t.Cleanup(broken.Close)
	o := admin.DefineStream(admin.Operation{Name: "people walk", Short: "Walk by", Role: admin.Viewer},
		func(context.Context, *admin.Env, admin.None, func(greeted) error) (admin.None, error) {
			return admin.None{}, nil
		},
		func(admin.None) func(*printer.Page, greeted) { return func(*printer.Page, greeted) {} }, func(*printer.Page, admin.None, admin.None) {})
	_, err := open(t, client.Config{Server: broken.URL}).Stream(t.Context(), o, o.NewInput(), func(any) error { return nil })
	require.ErrorContains(t, err, "broke off")
	require.Equal(t, errkind.Unavailable, errkind.Of(err))
}
