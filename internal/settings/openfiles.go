package settings

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/config"
)

// publicFiles are the settings of files that hold no secret.
var publicFiles = []string{"ca_file", "cert_file"}

// OpenFiles lists the files with secrets that other accounts of the machine may read or write: those of
// *_file settings, and configuration files in which a secret is set. A file that cannot be read is left
// out; whatever needs it reports that.
func (s Settings) OpenFiles() []string {
	var files []string
	for _, k := range s.Shown() {
		walkShown(k.Key, k.Value, func(key, text string) {
			if name := key[strings.LastIndex(key, ".")+1:]; strings.HasSuffix(name, "_file") && !slices.Contains(publicFiles, name) {
				files = append(files, text)
			}
		})
	}
	files = append(files, s.filesWithSecrets()...)
	slices.Sort(files)
	return slices.DeleteFunc(slices.Compact(files), func(file string) bool {
		info, err := os.Stat(file)
		return err != nil || info.Mode().Type() != 0 || info.Mode()&fs.FileMode(0o077) == 0
	})
}

// filesWithSecrets lists the configuration files of settings that are not shown as they are.
func (s Settings) filesWithSecrets() (files []string) {
	add := func(path string) {
		if source := s.Source(path); source.Kind == config.FromFile {
			files = append(files, source.Name[:max(strings.LastIndex(source.Name, ":"), 0)])
		}
	}
	shown := make(map[string]any)
	for _, k := range s.Shown() {
		shown[k.Key] = k.Value
	}
	for _, k := range config.Keys(s.Config) {
		if text, is := k.Value.(string); is && shown[k.Name] != text {
			add(k.Name)
		}
	}
	for i, sender := range s.Senders.Shown() {
		walkShown("", sender, func(key, text string) {
			if !strings.HasSuffix(key, ".username") && strings.HasPrefix(text, "(") && strings.HasSuffix(text, "set)") { // setNotShown, or so many of a list
				add(fmt.Sprintf("senders[%d]", i))
			}
		})
	}
	return files
}

// walkShown calls each with every text that is set, and its key.
func walkShown(key string, value any, each func(key, text string)) {
	switch v := value.(type) {
	case string:
		if v != "" {
			each(key, v)
		}
	case map[string]any:
		for name, part := range v {
			walkShown(key+"."+name, part, each)
		}
	case []map[string]any:
		for _, part := range v {
			walkShown(key, part, each)
		}
	}
}
