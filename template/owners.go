package template

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const projectsName = ".projects"

// projects are the libraries of projects in use.
type projects struct {
	mu sync.Mutex
	by map[string]*Library
}

// of returns the library of a project's own templates. Those of the operator's project are
// public.
func (l *Library) of(project string) *Library {
	if project == "" || project == bothy.DefaultProject || project == l.project {
		return l
	}
	l.projects.mu.Lock()
	defer l.projects.mu.Unlock()
	if own := l.projects.by[project]; own != nil {
		return own
	}
	own := &Library{dir: filepath.Join(l.dir, projectsName, folderOf(project)), opts: l.opts, project: project, common: l.common, parent: l}
	if l.projects.by == nil {
		l.projects.by = map[string]*Library{}
	}
	l.projects.by[project] = own
	return own
}

// visible returns the libraries that a project may use, its own first.
func (l *Library) visible(project string) []*Library {
	if own := l.of(project); own != l {
		return []*Library{own, l}
	}
	return []*Library{l}
}

// everything returns this library and those of all projects.
func (l *Library) everything() ([]*Library, error) {
	all := []*Library{l}
	entries, err := os.ReadDir(filepath.Join(l.dir, projectsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the projects that have templates: %w", err)
	}
	for _, e := range entries {
		all = append(all, l.of(e.Name()))
	}
	for _, project := range l.common.owners() {
		if own := l.of(project); !slices.Contains(all, own) {
			all = append(all, own)
		}
	}
	return all, nil
}

// Find finds a template as a project sees it, without using it.
func (l *Library) Find(project, name string) (*store.Template, error) { return l.find(project, name) }

// root is the library that contains those of all projects.
func (l *Library) root() *Library {
	if l.parent != nil {
		return l.parent
	}
	return l
}

// All lists the templates of all projects, for the server itself.
func (l *Library) All() ([]*store.Template, error) {
	all, err := l.everything()
	if err != nil {
		return nil, err
	}
	return l.listed(all)
}

// Here lists the templates of all projects whose images this host has.
func (l *Library) Here() ([]*store.Template, error) {
	all, err := l.All()
	return slices.DeleteFunc(all, func(t *store.Template) bool { return !isHere(t) }), err
}

func (l *Library) listed(in []*Library) ([]*store.Template, error) {
	list := []*store.Template{}
	for _, at := range in {
		names, err := at.names()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			for _, version := range at.tags(name) {
				if t, err := at.load(name, version); err == nil {
					list = append(list, t)
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *store.Template) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// home is the folder of a name, and workFolder that of its build.
func (l *Library) home(name string) string { return filepath.Join(l.dir, folderOf(name)) }

func (l *Library) workFolder(name string) string {
	return filepath.Join(l.dir, ".build", folderOf(name))
}

// folderOf is the folder name of a template name. Template names contain no plus.
func folderOf(name string) string { return strings.ReplaceAll(name, "/", "+") }

// tagLink is the file name of a tag's link, and tagOf the tag if it is not the
// default.
func tagLink(tag string) string {
	if tag == bothy.DefaultTag {
		return currentName
	}
	return "@" + tag
}

func tagOf(link string) string {
	tag, _ := strings.CutPrefix(link, "@")
	if tag == link {
		return ""
	}
	return tag
}

// names lists all names with a tag, in order.
func (l *Library) names() ([]string, error) {
	all, err := l.folders()
	for k := range l.common.with(l.project, func(_ nameKey, n sharedName) bool { return n.digest != "" }) {
		all = append(all, k.name)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(name string) bool { return len(l.tags(name)) == 0 }), err
}

// folders lists all names with a folder, including those with only untagged images.
func (l *Library) folders() ([]string, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	var names []string
	for _, e := range entries {
		name := strings.ReplaceAll(e.Name(), "+", "/")
		if bothy.ValidTemplateName(name) && e.IsDir() {
			names = append(names, name)
		}
	}
	return names, nil
}

// tags lists the tags of a name, as links. In a cluster, these are the store's and those of
// this host that the store does not have yet.
func (l *Library) tags(name string) []string {
	links := slices.DeleteFunc(l.links(name), func(link string) bool {
		row, known := l.common.of(l.key(name, link))
		return known && row.digest == ""
	})
	for k := range l.common.withName(l.project, name, func(_ nameKey, n sharedName) bool { return n.digest != "" }) {
		if link := tagLink(k.tag); !slices.Contains(links, link) {
			links = append(links, link)
		}
	}
	slices.Sort(links)
	return links
}

// links lists the links of a name in the folder.
func (l *Library) links(name string) []string {
	entries, _ := os.ReadDir(l.home(name))
	var links []string
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 && (e.Name() == currentName || strings.HasPrefix(e.Name(), "@")) {
			links = append(links, e.Name())
		}
	}
	return links
}

// digests lists all images of a name, tagged or not.
func (l *Library) digests(name string) ([]string, error) {
	entries, err := os.ReadDir(l.home(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list images of %s: %w", name, err)
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, e.Name())
		}
	}
	return list, nil
}

// tagged returns which images of a name have a tag, ignoring one link.
func (l *Library) tagged(name, but string) map[string]bool {
	kept := map[string]bool{}
	for _, link := range l.tags(name) {
		if link != but {
			kept[filepath.Base(l.path(name, link))] = true
		}
	}
	return kept
}
