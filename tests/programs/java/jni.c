/* The native method of Jni.java: calls its method `back`. */
#include <jni.h>

JNIEXPORT jlong JNICALL Java_Jni_call(JNIEnv *env, jclass class, jint depth)
{
	static jmethodID back;

	if (!back)
		back = (*env)->GetStaticMethodID(env, class, "back", "(I)J");
	return (*env)->CallStaticLongMethod(env, class, back, depth) + 1;
}
