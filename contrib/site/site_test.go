// Package site_test checks the site that `make site` has written: each link to a page, an image or an anchor of
// the site has a target, and each link to a file on GitHub is one to a file of this commit.
package site_test

import (
	"bytes"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

const (
	site       = "../../site"
	onGitHub   = "https://github.com/belfryhq/belfry/blob/main/"
	repository = "../../"
)

// page has the links of a page, and its anchors.
type page struct {
	links   []string
	anchors map[string]bool
}

func read(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(site, name))
	require.NoError(t, err)
	root, err := html.Parse(bytes.NewReader(text))
	require.NoError(t, err)
	p := page{anchors: map[string]bool{"": true}}
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			switch a.Key {
			case "id":
				require.False(t, p.anchors[a.Val], "%s has two anchors %s", name, a.Val)
				p.anchors[a.Val] = true
			case "href", "src":
				p.links = append(p.links, a.Val)
			}
		}
	}
	return p
}

func TestSite_LinksHaveTargets(t *testing.T) {
	t.Parallel()
	pages, files := map[string]page{}, map[string]bool{}
	require.NoError(t, filepath.WalkDir(site, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err = filepath.Rel(site, name)
		name = filepath.ToSlash(name)
		files[name] = true
		if path.Ext(name) == ".html" {
			pages[name] = read(t, name)
		}
		return err
	}), "run make site")
	for name, p := range pages {
		for _, link := range p.links {
			to, err := url.Parse(link)
			require.NoError(t, err, name)
			if file, ok := strings.CutPrefix(link, onGitHub); ok {
				file, _, _ = strings.Cut(file, "#")
				_, err := os.Stat(repository + file)
				require.NoError(t, err, "%s links to %s", name, link)
				require.False(t, files[strings.TrimSuffix(file, ".md")+".html"], "%s links to %s instead of the page", name, link)
			}
			if to.Host != "" {
				continue
			}
			target := name
			if to.Path != "" {
				target = path.Join(path.Dir(name), to.Path)
			}
			require.True(t, files[target], "%s links to %s", name, link)
			require.True(t, to.Fragment == "" || pages[target].anchors[to.Fragment], "%s links to %s", name, link)
		}
	}
	// Each file of docs is a page.
	sources, err := filepath.Glob(repository + "docs/*.md")
	require.NoError(t, err)
	decisions, err := filepath.Glob(repository + "docs/adr/*.md")
	require.NoError(t, err)
	for _, source := range append(sources, decisions...) {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(source), repository), ".md") + ".html"
		require.True(t, files[strings.Replace(name, "README", "index", 1)], "%s has no page", source)
	}
}
