package agent

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/files"
	"github.com/bothy-dev/bothy/guest/wire/filesystempb"
)

type filesystemService struct{ a *Agent }

func (s *filesystemService) Stat(ctx context.Context, req *filesystempb.StatRequest) (*filesystempb.StatResponse, error) {
	u, path, err := s.a.path(ctx, req.Path)
	if err != nil {
		return nil, err
	}
	info, err := s.a.files.Stat(u, path)
	return &filesystempb.StatResponse{Entry: s.entry(ctx, u, info)}, err
}

func (s *filesystemService) MakeDir(ctx context.Context, req *filesystempb.MakeDirRequest) (*filesystempb.MakeDirResponse, error) {
	u, path, err := s.a.path(ctx, req.Path)
	if err != nil {
		return nil, err
	}
	info, err := s.a.files.Mkdir(u, path, req.ExistOk)
	return &filesystempb.MakeDirResponse{Entry: s.entry(ctx, u, info)}, err
}

func (s *filesystemService) Move(ctx context.Context, req *filesystempb.MoveRequest) (*filesystempb.MoveResponse, error) {
	u, from, err := s.a.path(ctx, req.Source)
	if err != nil {
		return nil, err
	}
	_, to, err := s.a.path(ctx, req.Destination)
	if err != nil {
		return nil, err
	}
	info, err := s.a.files.Move(u, from, to)
	return &filesystempb.MoveResponse{Entry: s.entry(ctx, u, info)}, err
}

func (s *filesystemService) ListDir(ctx context.Context, req *filesystempb.ListDirRequest) (*filesystempb.ListDirResponse, error) {
	u, path, err := s.a.path(ctx, req.Path)
	if err != nil {
		return nil, err
	}
	list, err := s.a.files.List(u, path, int(min(req.Depth, 1000)))
	if err != nil {
		return nil, err
	}
	res := &filesystempb.ListDirResponse{Entries: make([]*filesystempb.EntryInfo, len(list))}
	for i := range list {
		res.Entries[i] = s.entry(ctx, u, list[i])
	}
	return res, nil
}

func (s *filesystemService) Remove(ctx context.Context, req *filesystempb.RemoveRequest) (*filesystempb.RemoveResponse, error) {
	u, path, err := s.a.path(ctx, req.Path)
	if err != nil {
		return nil, err
	}
	return &filesystempb.RemoveResponse{}, s.a.files.Remove(u, path, req.MustExist)
}

var fileTypes = map[bothy.FileType]filesystempb.FileType{
	bothy.FileRegular:   filesystempb.FileType_FILE_TYPE_FILE,
	bothy.FileDirectory: filesystempb.FileType_FILE_TYPE_DIRECTORY,
	bothy.FileSymlink:   filesystempb.FileType_FILE_TYPE_SYMLINK,
}

// entry describes a file. Only E2B's clients get their own metadata back, and where a symbolic
// link leads in place of what it says.
func (s *filesystemService) entry(ctx context.Context, u *account.User, i files.Info) *filesystempb.EntryInfo {
	e := entry(i)
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok && info.RequestHeader().Get(headerWorkdir) == "" && e.Path != "" {
		e.Metadata = files.Metadata(e.Path)
		if e.IsSymlink {
			to := s.a.files.Resolve(u, e.Path)
			e.SymlinkTarget = &to
		}
	}
	return e
}

func entry(i files.Info) *filesystempb.EntryInfo {
	e := &filesystempb.EntryInfo{
		Name: i.Name, Type: fileTypes[i.Target], Path: i.Path, Size: i.Size, Mode: files.Bits(i.Mode),
		Permissions: i.Mode.String(), Owner: i.Owner, Group: i.Group, ModifiedTime: timestamppb.New(i.ModifiedAt),
		IsSymlink: i.Kind == bothy.FileSymlink, Uid: i.UID, Gid: i.GID, Kind: string(i.Kind), Escaped: i.Escaped,
	}
	if e.IsSymlink {
		e.SymlinkTarget = &i.LinkTarget
	}
	return e
}
