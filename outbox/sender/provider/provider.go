// Package provider contains one client for each kind of provider that belfry supports.
//
//	alimtalk  KakaoTalk AlimTalk, through NAVER Cloud's SENS
//	apns      push to Apple devices, by Apple's own service
//	fcm       push by Firebase Cloud Messaging
//	sms       text messages, by any gateway with an HTTP API
//	smtp      mail, through one server
//	webhook   signed POSTs of JSON
//	webpush   push to browsers
//
// New returns a client for the settings of a kind, such as FCMConfig. The settings start from their defaults,
// such as DefaultFCM. The guarantees of a kind are documented with its settings; package sender documents the
// rules for all clients.
//
// HTTP clients share httpClient in call.go. A program that uses the settings of one kind links only that
// kind's client; Kinds links all of them.
package provider

import (
	"context"
	"io"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// Config is a pointer to the settings of one kind.
type Config interface {
	// kind returns the name of the kind, which is also the name of its section in the configuration.
	kind() string
	// validate adds every problem with its key. It reads no file.
	validate(p *sender.ValidationErrors)
	// open reads the files that the settings name. It opens no connection. now is the clock.
	open(now func() time.Time) (Client, error)
}

// Client sends to one provider.
type Client interface {
	sender.Sender
	// Close closes idle connections. Calls in progress continue.
	io.Closer
}

// Kind describes a kind of provider.
type Kind struct {
	Medium    string   // by default
	Platforms []string // by default; empty for all
	Config    Config   // a new copy of the defaults
}

// Kinds returns the kinds by name.
func Kinds() map[string]Kind {
	return map[string]Kind{
		"alimtalk": {Medium: "alimtalk", Config: DefaultAlimtalk()},
		"apns":     {Medium: "push", Platforms: []string{"ios"}, Config: DefaultAPNs()},
		"fcm":      {Medium: "push", Config: DefaultFCM()},
		"sms":      {Medium: "sms", Config: DefaultSMS()},
		"smtp":     {Medium: "email", Config: DefaultSMTP()},
		"webhook":  {Medium: "webhook", Config: DefaultWebhook()},
		"webpush":  {Medium: "push", Platforms: []string{"web"}, Config: DefaultWebPush()},
	}
}

// Validate returns all problems of the settings, each with its key under path, or nil. It reads no file.
func Validate(path string, cfg Config) error {
	problems := sender.ValidationErrors{Path: path}
	cfg.validate(&problems)
	return problems.Err()
}

// New returns a client for settings. It reads the files that they name and opens no connection. Its errors
// name the key of the problem and contain no secret. now is the clock.
func New(cfg Config, now func() time.Time) (Client, error) {
	if err := Validate(cfg.kind(), cfg); err != nil {
		return nil, err
	}
	return cfg.open(now)
}

// oneByOne is a Client whose provider accepts one message per call.
type oneByOne struct {
	io.Closer
	// deliver calls the provider once.
	deliver func(context.Context, sender.Delivery) sender.Result
}

// MaxBatch implements sender.Sender.
func (o *oneByOne) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (o *oneByOne) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	for i, d := range batch {
		results[i] = o.deliver(ctx, d)
	}
	return results
}
