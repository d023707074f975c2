// Package provider has the clients of the providers that belfry knows, one kind each.
//
//	alimtalk  KakaoTalk AlimTalk, through NAVER Cloud's SENS
//	apns      push to Apple devices, by Apple's own service
//	fcm       push by Firebase Cloud Messaging
//	sms       text messages, by any gateway that takes them over HTTP
//	smtp      mail, through one server
//	webhook   signed POSTs of JSON
//	webpush   push to browsers
//
// New makes a client of the settings of its kind, such as FCMConfig, which begin with
// their defaults, as DefaultFCM. What a kind promises stands with its settings; the rules
// for all of them are those of package sender.
//
// Those over HTTP share httpClient, in call.go. A program links what it names: one kind's
// settings bring that kind's client, and Kinds brings all.
package provider

import (
	"context"
	"io"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// Config is the settings of one kind: a pointer to one of this package's structs.
type Config interface {
	// kind names the kind, and the section of its settings.
	kind() string
	// validate notes every problem with its key. It reads no file.
	validate(p *sender.Problems)
	// open reads the files that the settings name, and opens no connection. now is the clock.
	open(now func() time.Time) (Client, error)
}

// Client sends to one provider.
type Client interface {
	sender.Sender
	// Close ends the connections that are idle. Calls in progress go on.
	io.Closer
}

// Kind is what is known of a kind before its settings are read.
type Kind struct {
	Medium    string   // by default
	Platforms []string // by default; none: all
	Config    Config   // the defaults, the caller's own
}

// Kinds are the kinds by name.
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

// Validate returns every problem of the settings at once, each with its key under path,
// or nil. It reads no file.
func Validate(path string, cfg Config) error {
	problems := sender.Problems{Path: path}
	cfg.validate(&problems)
	return problems.Err()
}

// New makes a client of settings. It reads the files that they name and opens no
// connection; its errors name the key of the problem and hold no secret. now is the clock.
func New(cfg Config, now func() time.Time) (Client, error) {
	if err := Validate(cfg.kind(), cfg); err != nil {
		return nil, err
	}
	return cfg.open(now)
}

// oneByOne is a Client whose provider takes one message per call.
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
