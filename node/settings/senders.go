package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender/provider"
)

// Sender is one entry of senders: the settings of every sender, and those of its kind.
type Sender struct {
	relay.SenderConfig

	Kind     string
	Settings provider.Config
}

// Senders is the setting senders.
type Senders []Sender

// keyKind is the key of Sender.Kind.
const keyKind = "kind"

// DecodeSenders returns every sender, and every problem. A value with a problem keeps its default.
func DecodeSenders(items []any, retry relay.RetryConfig) (Senders, error) {
	list := make(Senders, 0, len(items))
	var problems []error
	for i, item := range items {
		entry, err := decodeSender(fmt.Sprintf("senders[%d]", i), item, retry)
		problems = append(problems, err)
		list = append(list, entry)
	}
	return list, errors.Join(problems...)
}

// decodeSender decodes one entry over the defaults of its kind. retry is the default of every kind except
// smtp.
func decodeSender(path string, item any, retry relay.RetryConfig) (Sender, error) {
	entry := Sender{SenderConfig: relay.DefaultSenderConfig()}
	entry.Retry = retry
	section, ok := config.Section(item)
	if !ok {
		return entry, fmt.Errorf("%s: must be a section of keys", path)
	}
	if entry.Kind, _ = section[keyKind].(string); entry.Kind == "smtp" {
		entry.SenderConfig = relay.DefaultMailSenderConfig()
	}
	common := maps.Clone(section)
	delete(common, keyKind)
	delete(common, entry.Kind)
	kind, known := provider.Kinds()[entry.Kind]
	var problems []error
	for _, other := range Kinds() {
		if _, given := common[other]; given && known {
			problems = append(problems, fmt.Errorf("%s.%s: is the section of another kind; allowed here: %s", path, other, entry.Kind))
		}
		delete(common, other)
	}
	if known {
		entry.Medium, entry.Platforms, entry.Settings = kind.Medium, kind.Platforms, kind.Config
		problems = append(problems, config.Decode(path+"."+entry.Kind, section[entry.Kind], entry.Settings))
	} else {
		problem := fmt.Sprintf("%q is not allowed", text.OneLine(fmt.Sprint(section[keyKind]), 60))
		if section[keyKind] == nil {
			problem = "is required"
		}
		problems = append(problems, fmt.Errorf("%s.kind: %s; allowed values: %s", path, problem, strings.Join(Kinds(), ", ")))
	}
	return entry, errors.Join(append(problems, config.Decode(path, common, &entry.SenderConfig))...)
}

// Validate returns every problem of every sender, except problems of an inherited retry policy that
// delivery contains.
func (l Senders) Validate(delivery []error) []error {
	var problems []error
	for i, entry := range l {
		if entry.Settings != nil { // its kind is known
			problems = append(problems, provider.Validate(fmt.Sprintf("senders[%d].%s", i, entry.Kind), entry.Settings))
		}
	}
	for _, err := range keys.Flatten(relay.ValidateSenders("senders", l.Configs())) {
		_, key, _ := strings.Cut(err.Error(), "].retry.")
		inherited := func(e error) bool { return e.Error() == "delivery.retry."+key }
		if !slices.ContainsFunc(delivery, inherited) {
			problems = append(problems, err)
		}
	}
	return problems
}

// Configs returns the configurations of the senders for the relay.
func (l Senders) Configs() []relay.SenderConfig {
	list := make([]relay.SenderConfig, 0, len(l))
	for _, entry := range l {
		list = append(list, entry.SenderConfig)
	}
	return list
}

// Targeted lists the media whose senders all have a fixed target, so that a message needs no address of
// its channel.
func (l Senders) Targeted() []string {
	targets := make(map[string]bool)
	for _, entry := range l {
		own, isWebhook := entry.Settings.(*provider.WebhookConfig)
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

// Names lists the senders by name.
func (l Senders) Names() []string {
	names := make([]string, 0, len(l))
	for _, entry := range l {
		names = append(names, entry.Name)
	}
	return names
}

// checkSecrets checks the files that senders name, and their content. Of a sender with invalid settings it
// checks only whether the files can be opened.
func (l Senders) checkSecrets(wrong func(path string) bool) error {
	var problems []error
	for i, entry := range l {
		path := fmt.Sprintf("senders[%d].%s", i, entry.Kind)
		err := entry.missingFiles(path)
		if entry.Settings != nil && err == nil && !wrong(path) {
			client, openErr := provider.New(entry.Settings, time.Now)
			if openErr != nil {
				err = fmt.Errorf("%s: %w", path, openErr)
			} else {
				err = client.Close()
			}
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// missingFiles reports the files that settings name and that cannot be opened.
func (e Sender) missingFiles(path string) error {
	if e.Settings == nil {
		return nil
	}
	var problems []error
	for _, field := range keys.Fields(reflect.ValueOf(e.Settings).Elem()) {
		name := field.Value.String()
		if !strings.HasSuffix(field.Key, "_file") || name == "" {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s.%s: %s", path, field.Key, config.ReadProblem(name, err)))
			continue
		}
		problems = append(problems, f.Close())
	}
	return errors.Join(problems...)
}

// Open makes the clients, and reads the files that settings name. The returned function closes the
// clients. The error is a *node.ConfigError.
func (l Senders) Open() (list []relay.Sender, done func() error, err error) {
	var clients []provider.Client
	done = func() error {
		var errs []error
		for _, client := range clients {
			errs = append(errs, client.Close())
		}
		return errors.Join(errs...)
	}
	var problems []error
	for i, entry := range l {
		client, err := provider.New(entry.Settings, time.Now)
		if err != nil {
			problems = append(problems, fmt.Errorf("senders[%d].%s: %w", i, entry.Kind, err))
			continue
		}
		clients = append(clients, client)
		list = append(list, relay.Sender{SenderConfig: entry.SenderConfig, Client: client})
	}
	if err := errors.Join(problems...); err != nil {
		return nil, nil, errors.Join(&node.ConfigError{Err: err}, done())
	}
	return list, done, nil
}

// Kinds lists the kinds of senders.
func Kinds() []string { return slices.Sorted(maps.Keys(provider.Kinds())) }
