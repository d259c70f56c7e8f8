"""Points the Colab buttons to the branch `colab`, whose notebooks install dynconv first."""


def point_to_branch(app, page, template, context, doctree):
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []):
            if button.get("text") == "Colab":
                button["url"] = button["url"].replace("/blob/main/lessons/", "/blob/colab/")


def setup(app):
    app.connect("html-page-context", point_to_branch, priority=600)  # the theme adds them at 501
    return {"parallel_read_safe": True, "parallel_write_safe": True}
