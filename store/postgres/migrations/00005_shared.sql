-- +goose Up

-- The templates of the hosts that share the database, by their names. A name that was removed
-- keeps its row, without a digest: a host that was unavailable learns from it that the name is gone.
CREATE TABLE template_names (
    -- Empty where the template is for all projects.
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    tag        text COLLATE "C" NOT NULL,
    digest     text COLLATE "C" NOT NULL,
    -- That of the last change. Changes are made one after the other, so that who has seen one
    -- has seen all before it.
    version    bigint NOT NULL,
    changed_at bigint NOT NULL,
    -- The template's manifest.
    record     text NOT NULL,
    PRIMARY KEY (project, name, tag)
);
CREATE INDEX template_names_version ON template_names (version);
CREATE INDEX template_names_digest ON template_names (digest);

-- Folders of files that hosts have of each other: images of templates, builds of engines, and
-- snapshots of new sandboxes. What was fetched is compared with the sums in the record.
CREATE TABLE shared_trees (
    kind        text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    -- The host that has published it.
    host        text COLLATE "C" NOT NULL,
    bytes       bigint NOT NULL,
    created_at  bigint NOT NULL,
    -- Since when it is in the object storage, and since when nothing needs it.
    stored_at   bigint,
    unneeded_at bigint,
    record      text NOT NULL,
    PRIMARY KEY (kind, name)
);

-- +goose Down
DROP TABLE shared_trees, template_names;
