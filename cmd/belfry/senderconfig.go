package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/alimtalk"
	"github.com/belfryhq/belfry/outbox/sender/apns"
	"github.com/belfryhq/belfry/outbox/sender/fcm"
	"github.com/belfryhq/belfry/outbox/sender/sms"
	"github.com/belfryhq/belfry/outbox/sender/smtp"
	"github.com/belfryhq/belfry/outbox/sender/webhook"
	"github.com/belfryhq/belfry/outbox/sender/webpush"
)

// senderEntry is one entry of senders: what every sender has, and the settings of its
// kind.
type senderEntry struct {
	relay.SenderConfig

	Kind     string
	Settings settingsOfKind

	given any // as the file has it
}

// senderList is the setting senders.
type senderList []senderEntry

// The keys of an entry that relay.SenderConfig does not have.
const keyKind = "kind"

// convertSenders takes the list of a file, or the JSON of one from a variable. Nothing
// of it passes through viper, which would lower the case of keys.
func convertSenders(data any) (any, error) {
	items, err := sectionsOf(reflect.TypeFor[senderList](), data)
	if err != nil {
		return nil, err
	}
	return decodeSenders(items, relay.DefaultConfig().Retry)
}

// decodeSenders returns every sender as far as it can be used, with every problem.
func decodeSenders(items []any, retry relay.RetryConfig) (senderList, error) {
	list := make(senderList, 0, len(items))
	var problems []error
	for i, item := range items {
		entry, err := decodeSender(fmt.Sprintf("senders[%d]", i), item, retry)
		problems = append(problems, err)
		list = append(list, entry)
	}
	return list, errors.Join(problems...)
}

// decodeSender takes one entry over the defaults of its kind.
func decodeSender(path string, item any, retry relay.RetryConfig) (senderEntry, error) {
	entry := senderEntry{SenderConfig: relay.DefaultSenderConfig(), given: item}
	entry.Retry = retry
	section, ok := asSection(item)
	if !ok {
		return entry, fmt.Errorf("%s: must be a section of keys", path)
	}
	entry.Kind, _ = section[keyKind].(string)
	kind, ok := senderKinds()[entry.Kind]
	if !ok {
		problem := fmt.Sprintf("%q is not allowed", oneLine(fmt.Sprint(section[keyKind]), 60))
		if section[keyKind] == nil {
			problem = "is required"
		}
		return entry, fmt.Errorf("%s.kind: %s; allowed values: %s", path, problem, strings.Join(kindNames(), ", "))
	}
	entry.Medium, entry.Platforms = kind.medium, slices.Clone(kind.platforms)
	common := maps.Clone(section)
	delete(common, keyKind)
	delete(common, entry.Kind)
	var err error
	entry.Settings, err = kind.decode(path+"."+entry.Kind, section[entry.Kind])
	problems := []error{err}
	for _, other := range kindNames() {
		if _, given := common[other]; given {
			problems = append(problems, fmt.Errorf("%s.%s: is the section of another kind; allowed here: %s", path, other, entry.Kind))
			delete(common, other)
		}
	}
	return entry, errors.Join(append(problems, decodeStrict(path, common, &entry.SenderConfig))...)
}

// over returns the list with another default of retry.
func (l senderList) over(retry relay.RetryConfig) senderList {
	items := make([]any, 0, len(l))
	for _, entry := range l {
		items = append(items, entry.given)
	}
	again, err := decodeSenders(items, retry)
	if err != nil {
		return l // it was decoded before
	}
	return again
}

// validate reports every problem of every sender.
func (l senderList) validate() []error {
	var problems []error
	for i, entry := range l {
		if entry.Settings != nil { // its kind is known
			problems = append(problems, entry.Settings.Validate(fmt.Sprintf("senders[%d].%s", i, entry.Kind)))
		}
	}
	return append(problems, relay.ValidateSenders("senders", l.configs()))
}

// configs are what the relay is told about the senders.
func (l senderList) configs() []relay.SenderConfig {
	list := make([]relay.SenderConfig, 0, len(l))
	for _, entry := range l {
		list = append(list, entry.SenderConfig)
	}
	return list
}

// targeted lists the media all of whose senders have a target of their own: a message
// goes there whether or not its channel has an address.
func (l senderList) targeted() []string {
	targets := make(map[string]bool)
	for _, entry := range l {
		own, isWebhook := entry.Settings.(webhook.Config)
		has := isWebhook && own.URL != ""
		if before, known := targets[entry.Medium]; known {
			has = has && before
		}
		targets[entry.Medium] = has
	}
	var media []string
	for medium, has := range targets {
		if has {
			media = append(media, medium)
		}
	}
	return media
}

// names lists the senders by name.
func (l senderList) names() []string {
	names := make([]string, 0, len(l))
	for _, entry := range l {
		names = append(names, entry.Name)
	}
	return names
}

// checkSecrets tries the files that senders name, and what is in them. A sender with
// another problem has its files looked for, and not read.
func (l *loader) checkSecrets(senders senderList) {
	for i, entry := range senders {
		item := fmt.Sprintf("senders[%d]", i)
		path := item + "." + entry.Kind
		problems := flatten(entry.missingFiles(path))
		if len(problems) == 0 && !slices.ContainsFunc(l.problems, func(p problem) bool { return strings.HasPrefix(p.text, item) }) {
			_, done, err := senderList{entry}.open()
			if err == nil {
				err = done()
			}
			problems = flatten(err)
		}
		for _, err := range problems {
			l.problem(l.sourceOf(path), "%s", err)
		}
	}
}

// missingFiles returns the files that settings name and that cannot be read.
func (e senderEntry) missingFiles(path string) error {
	if e.Settings == nil {
		return nil
	}
	settings := reflect.New(reflect.TypeOf(e.Settings)).Elem()
	settings.Set(reflect.ValueOf(e.Settings))
	fields := make(map[string]reflect.Value)
	gatherFields(settings, fields)
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !strings.HasSuffix(key, "_file") || fields[key].String() == "" {
			continue
		}
		f, err := os.Open(fields[key].String())
		if err != nil {
			problems = append(problems, fmt.Errorf("%s.%s: %s", path, key, readProblem(fields[key].String(), err)))
			continue
		}
		problems = append(problems, f.Close())
	}
	return errors.Join(problems...)
}

// open makes the clients, which reads the files that settings name. The returned
// function closes them.
func (l senderList) open() (list []relay.Sender, done func() error, err error) {
	var clients []sender.Sender
	done = func() error {
		var errs []error
		for _, client := range clients {
			if c, ok := client.(io.Closer); ok {
				errs = append(errs, c.Close())
			}
		}
		return errors.Join(errs...)
	}
	var problems []error
	for i, entry := range l {
		client, err := senderKinds()[entry.Kind].open(entry.Settings)
		if err != nil {
			problems = append(problems, fmt.Errorf("senders[%d].%s: %w", i, entry.Kind, err))
			continue
		}
		clients = append(clients, client)
		list = append(list, relay.Sender{SenderConfig: entry.SenderConfig, Client: client})
	}
	if err := errors.Join(problems...); err != nil {
		return nil, nil, errors.Join(&exitError{codeConfiguration, err}, done())
	}
	return list, done, nil
}

// kindNames lists the kinds of senders.
func kindNames() []string { return slices.Sorted(maps.Keys(senderKinds())) }

// settingsOfKind are the settings of one kind of sender, in full.
type settingsOfKind interface {
	Validate(path string) error
}

// senderKind is a kind of provider client.
type senderKind struct {
	medium    string   // by default
	platforms []string // by default; none: all
	decode    func(path string, section any) (settingsOfKind, error)
	open      func(settingsOfKind) (sender.Sender, error)
}

// kindOf describes a kind by its package's defaults and constructor.
func kindOf[C settingsOfKind, O any, S sender.Sender](medium string, platforms []string, defaults func() C, open func(C, ...O) (S, error)) senderKind {
	return senderKind{
		medium: medium, platforms: platforms,
		decode: func(path string, section any) (settingsOfKind, error) {
			settings := defaults()
			err := decodeStrict(path, section, &settings)
			return settings, err
		},
		open: func(settings settingsOfKind) (sender.Sender, error) {
			own, ok := settings.(C)
			if !ok {
				return nil, fmt.Errorf("settings of type %T", settings)
			}
			return open(own)
		},
	}
}

// senderKinds are the kinds by name.
func senderKinds() map[string]senderKind {
	return map[string]senderKind{
		"webhook":  kindOf("webhook", nil, webhook.DefaultConfig, webhook.New),
		"sms":      kindOf("sms", nil, sms.DefaultConfig, sms.New),
		"fcm":      kindOf("push", nil, fcm.DefaultConfig, fcm.New),
		"apns":     kindOf("push", []string{"ios"}, apns.DefaultConfig, apns.New),
		"webpush":  kindOf("push", []string{"web"}, webpush.DefaultConfig, webpush.New),
		"smtp":     kindOf("email", nil, smtp.DefaultConfig, smtp.New),
		"alimtalk": kindOf("alimtalk", nil, alimtalk.DefaultConfig, alimtalk.New),
	}
}
