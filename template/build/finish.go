package build

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template/tree"
)

// finishing is the version of how images are finished.
const finishing = 4

// image is a finished image in the cache.
type image struct{ key, path string }

// imageSum caches the digest and size of an image in the cache, which never changes:
// reading a large one takes longer than the rest of a fully cached build.
type imageSum struct {
	Digest    string `json:"digest"`
	SizeBytes int64  `json:"size_bytes"`
}

// finish writes a state as an image, with what sandboxes need and with folders for volumes,
// unless the cache has it. Of the build's arguments only epochArg matters.
func (j *job) finish(ctx context.Context, st *state, user, searchPath string, volumes []string, args map[string]string) (image, error) {
	users := cmp.Or(user, bothy.DefaultUser) == bothy.DefaultUser
	key := keyOf("final", finishing, st.key, searchPath, volumes, args[epochArg], users)
	img := image{key, j.b.cache.path(imagesDir, j.project, key)}
	if j.hold.has(img.path) {
		return img, nil
	}
	files, err := st.tree(ctx)
	if err != nil {
		return img, err
	}
	files = files.Clone()
	for _, dir := range volumes {
		if _, err := files.Mkdir(dir, time.Now()); err != nil {
			return img, err
		}
	}
	if err := j.b.o.Library.Finish(files, searchPath); err != nil {
		return img, err
	}
	if users {
		if err := giveWorkspace(files); err != nil {
			return img, err
		}
	}
	at, err := sourceDate(args)
	if err != nil {
		return img, err
	}
	if at != nil {
		files.NoLater(*at)
	}
	sum, err := j.b.writeImage(j.hold, files, img.path)
	if err != nil {
		return img, err
	}
	return img, j.hold.remember(sumKey(img), sum)
}

// sumKey is the key of the digest and size of an image.
func sumKey(img image) string { return keyOf("sum", img.key) }

// giveWorkspace gives the user of sandboxes what root left in the workspace: a repository that a
// build's commands cloned there could not be changed, and git would not trust it.
func giveWorkspace(files *tree.Tree) error {
	top, err := files.Lget(bothy.DefaultCwd)
	if err != nil || !top.IsDir() {
		return nil
	}
	home, err := files.Get("/home/" + bothy.DefaultUser)
	if err != nil {
		return nil
	}
	return files.ChangeAll(bothy.DefaultCwd, func(n *tree.Node) {
		if n.UID == 0 && n.Mode&unix.S_ISUID == 0 {
			n.UID = home.UID
			if n.GID == 0 {
				n.GID = home.GID
			}
		}
	})
}

// adopt makes an image a template. Its digest is computed once.
func (j *job) adopt(ctx context.Context, t *store.Template, img image) error {
	var sum imageSum
	key := sumKey(img)
	if j.hold.recall(key, &sum) {
		t.Digest, t.SizeBytes = sum.Digest, sum.SizeBytes
	}
	if err := j.b.o.Library.Adopt(ctx, t, img.path); err != nil {
		return err
	}
	if sum.Digest == t.Digest {
		return nil
	}
	return j.hold.remember(key, imageSum{t.Digest, t.SizeBytes})
}

// adoptAside makes an image a template under a temporary tag, which drop removes: its sandboxes
// keep the image, and the template's name does not move.
func (j *job) adoptAside(ctx context.Context, t *store.Template, prefix string, img image) (drop func(), err error) {
	ref, err := bothy.ParseTemplateRef(t.Name)
	if err != nil {
		return nil, err
	}
	tag := prefix + j.id
	t.Name = ref.Name + ":" + tag
	drop = func() {
		if err := j.b.o.Library.Untag(context.WithoutCancel(ctx), ref.Name, tag); err != nil {
			j.b.log.Warn("cannot remove a temporary tag of a build", "build", j.id, "template", ref.Name, "tag", tag, "error", err)
		}
	}
	if err := j.adopt(ctx, t, img); err != nil {
		drop()
		return nil, err
	}
	return drop, nil
}
