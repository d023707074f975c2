package settings

import (
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
)

// publicKeys are hidden settings and files of senders that contain no secret.
var publicKeys = []string{"username", "ca_file", "cert_file"}

// OpenFiles lists the files with secrets that other accounts of the machine may read or write: those of
// *_file settings, and configuration files in which a secret is set. A file that cannot be read is left
// out; its user reports the problem.
func (s Settings) OpenFiles() []string {
	var files []string
	secret := func(path string) {
		if source := s.Source(path); source.Kind == config.FromFile {
			files = append(files, source.Name[:max(strings.LastIndex(source.Name, ":"), 0)])
		}
	}
	named := func(key string, v reflect.Value) bool {
		is := strings.HasSuffix(key, "_file")
		if is && v.String() != "" && !slices.Contains(publicKeys, key) {
			files = append(files, v.String())
		}
		return is
	}
	for _, k := range keys.Of(s.Config) {
		text, isText := k.Value.(string)
		if isText && !named(k.Name[strings.LastIndex(k.Name, ".")+1:], reflect.ValueOf(text)) && shownText(k.Name, text) != text {
			secret(k.Name)
		}
	}
	for i, k := range s.Inbox.Centre.Keys {
		if k.Secret() && k.KeyFile != "" {
			files = append(files, k.KeyFile)
		} else if k.Secret() {
			secret(fmt.Sprintf("inbox.keys[%d]", i))
		}
	}
	for i, sender := range s.Senders {
		for _, part := range []reflect.Value{reflect.ValueOf(sender.SenderConfig), reflect.ValueOf(sender.Settings).Elem()} {
			eachField("", part, func(path string, v reflect.Value) {
				key := path[strings.LastIndex(path, ".")+1:]
				if !named(key, v) && !slices.Contains(publicKeys, key) && isHidden(path, v) {
					secret(fmt.Sprintf("senders[%d]", i))
				}
			})
		}
	}
	slices.Sort(files)
	return slices.DeleteFunc(slices.Compact(files), func(file string) bool {
		info, err := os.Stat(file)
		return err != nil || !info.Mode().IsRegular() || info.Mode()&fs.FileMode(0o077) == 0
	})
}

// eachField calls each with every leaf field of a struct, and its path.
func eachField(prefix string, section reflect.Value, each func(path string, v reflect.Value)) {
	for _, f := range keys.Fields(section) {
		if f.Value.Kind() == reflect.Struct {
			eachField(prefix+f.Key+".", f.Value, each)
			continue
		}
		each(prefix+f.Key, f.Value)
	}
}
