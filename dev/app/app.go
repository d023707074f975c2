// Package app is an application for trying the notification centre: two people, Ann and Ben, side by side in one page,
// each with a bell. Each can like the other's post. `make run` starts it beside the daemon. It has no
// sign-in: it is for this machine only.
package app

import (
	"context"
	_ "embed" // page.html
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/inbox"
)

// Listen is the default address.
const Listen = "127.0.0.1:8480"

//go:embed page.html
var pageHTML string

// Config is the notification centre that the application uses.
type Config struct {
	URL      string // of the notification centre
	Audience string
	Key      inbox.Key // HS256
}

// Settings is a configuration of belfry for the application at an address, as YAML.
func Settings(listen, secret string) string {
	return fmt.Sprintf(`# The notification centre of belfry demo-app.
inbox:
  listen: 127.0.0.1:8471
  audience: demo-app
  origins: ["http://%s"]
  keys:
    - {id: demo-app, algorithm: HS256, key: %q}
`, listen, secret)
}

type person struct{ Name, Other string }

var people = map[string]person{"ann": {"ann", "ben"}, "ben": {"ben", "ann"}}

type app struct {
	Config

	pool     *pgxpool.Pool
	channels map[string]int64
	page     *template.Template
}

// Handler returns the application, and makes the channels of its people.
func Handler(ctx context.Context, pool *pgxpool.Pool, c Config) (http.Handler, error) {
	a := &app{Config: c, pool: pool, channels: make(map[string]int64), page: template.Must(template.New("").Parse(pageHTML))}
	for name := range people {
		var id int64
		//sql:allow as an application has it
		err := pool.QueryRow(ctx, `INSERT INTO belfry.channels (external_id, platform) VALUES ('demo-app-' || $1, 'web')
			ON CONFLICT (external_id) DO UPDATE SET active = true RETURNING id`, name).Scan(&id)
		if err != nil {
			return nil, fmt.Errorf("make the channel of %s: %w", name, err)
		}
		a.channels[name] = id
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", a.show)
	mux.HandleFunc("GET /{person}", a.show)
	mux.HandleFunc("GET /{person}/token", a.token)
	mux.HandleFunc("POST /{person}/like", a.like)
	return local(http.NewCrossOriginProtection().Handler(mux)), nil
}

// local refuses other names of this machine: with one, a page of the internet could read tokens (DNS rebinding).
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		if at, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !at.IsLoopback()) {
			http.Error(w, "open this at 127.0.0.1 or localhost", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Serve serves the application until ctx ends.
func Serve(ctx context.Context, listen string, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// show answers the page of one person, or the page with both.
func (a *app) show(w http.ResponseWriter, r *http.Request) {
	p, known := people[r.PathValue("person")]
	if !known && r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = a.page.Execute(w, struct {
		person

		URL string
	}{p, a.URL})
}

// token answers a token of the person, for ten minutes.
func (a *app) token(w http.ResponseWriter, r *http.Request) {
	channel, known := a.channels[r.PathValue("person")]
	if !known {
		http.NotFound(w, r)
		return
	}
	id := strconv.FormatInt(channel, 10)
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"aud": a.Audience, "sub": id, "exp": time.Now().Add(10 * time.Minute).Unix()})
	t.Header["kid"] = a.Key.ID
	text, err := t.SignedString([]byte(a.Key.Key))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(text))
}

// like notifies the other person, in the transaction in which an application would store the like.
func (a *app) like(w http.ResponseWriter, r *http.Request) {
	p, known := people[r.PathValue("person")]
	if !known {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	key := "like-of-post"
	err := pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		_, err := outbox.NotifyTx(ctx, tx, outbox.Activity{
			ChannelID: a.channels[p.Other], Category: "activity", Title: p.Name + " likes your post", Route: []string{},
			CollapseKey: &key, CollapsedTitle: "{{count}} likes of your post", RequestedBy: "demo-app",
		})
		return err
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
