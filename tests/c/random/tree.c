/* Groups, links and names: the tree of objects and its changes. */
#include "random.h"

struct object *root;
struct object *objects[512];
uint64_t last_object;
unsigned names;

static struct object *new_object(enum kind kind)
{
    struct object *object = calloc(1, sizeof *object);
    REQUIRE(object);
    REQUIRE(last_object + 1 < sizeof objects / sizeof *objects);
    object->kind = kind;
    object->id = -1;
    object->number = ++last_object;
    object->dataset.type = -1;
    objects[object->number] = object;
    return object;
}

void make_root(void)
{
    for (uint64_t i = 1; i <= last_object; i++) {
        if (objects[i]) {
            free_elements(&objects[i]->dataset);
            free(objects[i]);
        }
    }
    memset(objects, 0, sizeof objects);
    last_object = 0;
    names = 0;
    root = new_object(GROUP);
    root->links = 1;
    root->pinned = true;
}

struct object *pick(enum kind kind)
{
    struct object *found[512];
    size_t count = 0;
    for (uint64_t i = 1; i <= last_object; i++) {
        if (objects[i] && objects[i]->links && objects[i]->kind == kind) {
            found[count++] = objects[i];
        }
    }
    return count ? found[below(count)] : NULL;
}

struct object *pick_any(void)
{
    struct object *object = pick((enum kind)below(3));
    return object ? object : root;
}

static bool find(const struct object *from, const struct object *wanted, char *path)
{
    if (from == wanted) {
        *path = '\0';
        return true;
    }
    for (int i = 0; i < from->children; i++) {
        const struct link *link = &from->child[i];
        if (!link->target) {
            continue;
        }
        const int length = sprintf(path, "/%s", link->name);
        if (find(link->target, wanted, path + length)) {
            return true;
        }
    }
    return false;
}

void path_of(const struct object *object, char *path)
{
    REQUIRE(find(root, object, path));
    if (!*path) {
        strcpy(path, "/");
    }
}

hid_t open_object(struct object *object)
{
    if (run.live && object->id < 0) {
        char path[1024];
        path_of(object, path);
        object->id = H5(H5Oopen(run.file, path, H5P_DEFAULT));
    }
    return object->id;
}

void close_handle(struct object *object)
{
    if (object->id >= 0) {
        H5(H5Oclose(object->id));
        object->id = -1;
    }
}

void close_handles(void)
{
    for (uint64_t i = 1; i <= last_object; i++) {
        if (objects[i]) {
            close_handle(objects[i]);
        }
    }
}

void reopen_some_handles(void)
{
    for (uint64_t i = 1; i <= last_object; i++) {
        if (objects[i] && one_in(3)) {
            close_handle(objects[i]);
        }
    }
}

static void forget(struct object *object)
{
    close_handle(object);
    free_elements(&object->dataset);
    objects[object->number] = NULL;
    free(object);
}

/* Removes a link, and what only this link kept alive. */
static void drop(struct object *object)
{
    if (--object->links) {
        return;
    }
    for (int i = 0; i < object->children; i++) {
        if (object->child[i].target) {
            drop(object->child[i].target);
        }
    }
    forget(object);
}

static bool holds(const struct object *group, const struct object *wanted)
{
    char path[1024];
    return find(group, wanted, path);
}

/* Whether removing this object would remove one that must stay. */
static bool keeps_pinned(const struct object *object)
{
    if (object->pinned) {
        return true;
    }
    for (int i = 0; i < object->children; i++) {
        if (object->child[i].target && keeps_pinned(object->child[i].target)) {
            return true;
        }
    }
    return false;
}

struct object *pick_parent(char *name, const char *begin)
{
    const char *ends[] = {"", "_x", " y", ".z", "-\xc3\xa9", "_ID"};
    struct object *parent = one_in(3) ? root : pick(GROUP);
    char path[1024];
    path_of(parent, path);
    const size_t room = sizeof parent->child / sizeof *parent->child;
    if ((size_t)parent->children == room || strlen(path) > 120) {
        return NULL;
    }
    snprintf(name, sizeof parent->child->name, "%s%s%u%s", one_in(8) ? "_" : "", begin, names++, ends[below(6)]);
    return parent;
}

static void add_link(struct object *parent, const char *name, struct object *target)
{
    struct link *link = &parent->child[parent->children++];
    snprintf(link->name, sizeof link->name, "%s", name);
    link->target = target;
    if (target) {
        target->links++;
    }
}

struct object *add_object(enum kind kind, struct object *parent, const char *name)
{
    struct object *object = new_object(kind);
    add_link(parent, name, object);
    return object;
}

static void remove_link(struct object *parent, int which)
{
    struct link *links = parent->child;
    memmove(links + which, links + which + 1, (size_t)(--parent->children - which) * sizeof *links);
}

static void create_group(void)
{
    char name[24];
    struct object *parent = pick_parent(name, "group");
    if (!parent) {
        return;
    }
    const bool ordered = one_in(3), indexed = ordered && one_in(2);
    const hid_t id = open_object(parent);
    struct object *group = add_object(GROUP, parent, name);
    TELL("create the group %s", name);
    const hid_t plist = H5(H5Pcreate(H5P_GROUP_CREATE));
    if (ordered) {
        H5(H5Pset_link_creation_order(plist, H5P_CRT_ORDER_TRACKED | (indexed ? H5P_CRT_ORDER_INDEXED : 0u)));
    }
    if (one_in(4)) {
        H5(H5Pset_attr_creation_order(plist, H5P_CRT_ORDER_TRACKED));
    }
    if (one_in(4)) {
        H5(H5Pset_link_phase_change(plist, 3, 2));
    }
    if (run.live) {
        group->id = H5(H5Gcreate2(id, name, H5P_DEFAULT, plist, H5P_DEFAULT));
    }
    H5(H5Pclose(plist));
}

static void commit_type(void)
{
    char name[24];
    struct object *parent = pick_parent(name, "type");
    if (!parent) {
        return;
    }
    enum content content;
    const hid_t type = file_type(&content);
    const hid_t id = open_object(parent);
    struct object *object = add_object(DATATYPE, parent, name);
    TELL("commit the type %s", name);
    object->dataset.content = content;
    if (run.live) {
        const hid_t committed = H5(H5Tcopy(type));
        H5(H5Tcommit2(id, name, committed, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        object->id = committed;
    }
    object->dataset.type = type;
}

static void make_soft_link(void)
{
    char name[24], path[1024];
    struct object *parent = pick_parent(name, "soft");
    if (!parent) {
        return;
    }
    if (one_in(4)) {
        strcpy(path, "/nothing/here");
    } else {
        path_of(pick_any(), path);
    }
    const bool external = one_in(4);
    TELL("make the %s link %s to %s", external ? "external" : "soft", name, path);
    const hid_t id = open_object(parent);
    add_link(parent, name, NULL);
    if (external) {
        LIVE(H5Lcreate_external("other.h5", path, id, name, H5P_DEFAULT, H5P_DEFAULT));
    } else {
        LIVE(H5Lcreate_soft(path, id, name, H5P_DEFAULT, H5P_DEFAULT));
    }
}

static void make_hard_link(void)
{
    char name[24], path[1024];
    struct object *parent = pick_parent(name, "hard");
    struct object *target = pick_any();
    if (!parent || target == root || holds(target, parent)) {
        return;
    }
    const hid_t id = open_object(parent);
    path_of(target, path);
    TELL("make the hard link %s to %s", name, path);
    if (one_in(2)) {
        LIVE(H5Lcreate_hard(run.file, path, id, name, H5P_DEFAULT, H5P_DEFAULT));
    } else {
        const hid_t object = open_object(target);
        LIVE(H5Olink(object, id, name, H5P_DEFAULT, H5P_DEFAULT));
    }
    add_link(parent, name, target);
}

/* Moves or copies a link. */
static void move_link(bool copy)
{
    char name[24], from[1024];
    struct object *parent = pick_parent(name, copy ? "copied" : "moved");
    struct object *source = pick(GROUP);
    if (!parent || !source->children) {
        return;
    }
    const int which = (int)below((uint64_t)source->children);
    const struct link link = source->child[which];
    if (link.target && holds(link.target, parent)) {
        return;
    }
    path_of(source, from);
    if (strlen(from) > 1) {
        strcat(from, "/");
    }
    strcat(from, link.name);
    TELL("%s the link %s to %s", copy ? "copy" : "move", from, name);
    const hid_t id = open_object(parent);
    if (copy) {
        LIVE(H5Lcopy(run.file, from, id, name, H5P_DEFAULT, H5P_DEFAULT));
        add_link(parent, name, link.target);
        return;
    }
    LIVE(H5Lmove(run.file, from, id, name, H5P_DEFAULT, H5P_DEFAULT));
    remove_link(source, which);
    add_link(parent, name, link.target);
    if (link.target) {
        link.target->links--;
    }
}

static void delete_link(void)
{
    struct object *group = pick(GROUP);
    if (!group->children) {
        return;
    }
    const int which = (int)below((uint64_t)group->children);
    const struct link link = group->child[which];
    if (link.target && keeps_pinned(link.target)) {
        return;
    }
    /* Its space may be reused, and a late rank would write there. */
    flush_all();
    const hid_t id = open_object(group);
    TELL("delete the link %s", link.name);
    LIVE(H5Ldelete(id, link.name, H5P_DEFAULT));
    remove_link(group, which);
    if (link.target) {
        drop(link.target);
    }
}

struct copies {
    struct object *of[512];
    bool without_attributes;
};

static struct object *copy_of(const struct object *from, struct copies *copies)
{
    struct object *to = copies->of[from->number];
    if (to) {
        return to;
    }
    to = copies->of[from->number] = new_object(from->kind);
    if (!copies->without_attributes) {
        to->attributes = from->attributes;
        memcpy(to->attribute, from->attribute, sizeof to->attribute);
    }
    if (from->kind == GROUP) {
        for (int i = 0; i < from->children; i++) {
            struct object *target = from->child[i].target;
            add_link(to, from->child[i].name, target ? copy_of(target, copies) : NULL);
        }
    } else {
        copy_elements(&to->dataset, &from->dataset);
    }
    return to;
}

/* HDF5 1.14.6 fails to copy unwritten references. */
static bool has_references(const struct object *object)
{
    if (object->kind == DATASET && object->dataset.content == REFERENCES) {
        return true;
    }
    for (int i = 0; i < object->children; i++) {
        if (object->child[i].target && has_references(object->child[i].target)) {
            return true;
        }
    }
    return false;
}

static void copy_object(void)
{
    char name[24], path[1024];
    struct object *parent = pick_parent(name, "copy");
    struct object *source = pick_any();
    /* The copies of a large group would be most of the file. */
    if (!parent || source == root || last_object > 200 || (source->kind == GROUP && source->children > 4) ||
        holds(source, parent) || has_references(source)) {
        return;
    }
    flush_all();
    /* HDF5 1.14.6 incorrectly copies filtered chunks that are in the cache of an open dataset. */
    close_handles();
    path_of(source, path);
    TELL("copy the object %s to %s", path, name);
    const hid_t id = open_object(parent);
    struct copies copies = {.without_attributes = one_in(5)};
    const hid_t plist = H5(H5Pcreate(H5P_OBJECT_COPY));
    if (copies.without_attributes) {
        H5(H5Pset_copy_object(plist, H5O_COPY_WITHOUT_ATTR_FLAG));
    }
    LIVE(H5Ocopy(run.file, path, id, name, plist, H5P_DEFAULT));
    H5(H5Pclose(plist));
    /* Each rank has copied the elements. A late one must not overwrite what comes next. */
    flush_all();
    add_link(parent, name, copy_of(source, &copies));
}

void change_tree(void)
{
    switch (below(14)) {
    case 0:
    case 1:
    case 2:
        create_group();
        break;
    case 3:
        commit_type();
        break;
    case 4:
    case 5:
        make_soft_link();
        break;
    case 6:
        make_hard_link();
        break;
    case 7:
    case 8:
        move_link(false);
        break;
    case 9:
        move_link(true);
        break;
    case 10:
    case 11:
        delete_link();
        break;
    case 12:
        copy_object();
        break;
    default:
        reopen_some_handles();
    }
}
