package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/fake"
)

// fakeNotice is the first line of a file that belfry fake writes. It overwrites only such files.
const fakeNotice = "# Senders that deliver to the fakes of belfry fake."

// writeSenders writes the configuration to a file atomically. Only the owner may read the file, which
// contains credentials. It replaces no file that belfry fake has not written.
func writeSenders(name, text string) error {
	before, err := os.ReadFile(name)
	switch {
	case err == nil && !strings.HasPrefix(string(before), fakeNotice):
		return &operation.InvalidError{Problems: []operation.Problem{{Param: "--write",
			Text: name + " was not written by belfry fake; name another file, or remove it"}}}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--write: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".belfry-fake-*")
	if err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("--write: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Senders returns the configuration with which belfry delivers to the fakes.
func Senders(s *fake.Server) (string, error) {
	type entry struct {
		Name, Kind string
		Settings   map[string]any `yaml:",inline"` // in the section of its kind
	}
	var list []entry
	for _, sender := range s.Senders() {
		list = append(list, entry{sender.Name, sender.Kind, map[string]any{sender.Kind: sender.Settings}})
	}
	text, err := yaml.Marshal(map[string]any{"senders": list})
	return fakeNotice + "\n# Addresses for webpush: POST " + s.URL() + "/webpush/subscriptions\n" + string(text), err
}
